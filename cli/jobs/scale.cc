#include <optional>

#include "base/process/files.h"
#include "cli/jobs/control.h"
#include "cli/jobs/job_view.h"
#include "cli/jobs/patience.h"
#include "fmt/format.h"
#include "operator/job/job.h"
#include "operator/local/run_directory.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxFileBytes = 16 << 20;

Status checkCanScale(const JobView& job) {
  if (job.state == "Terminating") {
    return absl::FailedPreconditionError(fmt::format("'{}' is being deleted", job.name));
  }
  if (job.finished()) {
    return absl::FailedPreconditionError(
        fmt::format("'{}' has ended already: {}", job.name, job.state));
  }
  return absl::OkStatus();
}

// The job as given, with another number of workers: checked like any job file.
StatusOr<v1::TrainingJob> rescaled(const control::RunPaths& paths, std::int64_t workers) {
  TY_ASSIGN_OR_RETURN(const std::string text, readFile(paths.jobYaml(), kMaxFileBytes));
  control::ParseOptions options;
  options.overrides.emplace_back("worker.replicas", fmt::format("{}", workers));
  std::vector<control::JobProblem> problems;
  TY_ASSIGN_OR_RETURN(v1::TrainingJob job,
                      control::parseJob(text, paths.jobYaml().string(), options, &problems));
  TY_RETURN_IF_ERROR(control::checkSupported(job));
  return job;
}

// The generation that holds the number.
StatusOr<std::int64_t> recordWorkers(const control::RunPaths& paths, std::int64_t workers,
                                     const Clock& clock) {
  std::int64_t generation = 0;
  Status written;
  const Status edited = control::RunRecord(paths).edit(clock, [&](v1::TrainingJob* job) {
    generation = job->metadata().generation();
    const auto given = rescaled(paths, workers);
    written = given.status();
    if (written.ok()) {
      written = writeFileAtomically(paths.jobYaml(), control::toYaml(toJson(*given)));
    }
    if (!written.ok() || job->spec().worker().replicas() == workers) return false;
    job->mutable_spec()->mutable_worker()->set_replicas(static_cast<std::int32_t>(workers));
    ++generation;
    return true;
  });
  TY_RETURN_IF_ERROR(edited);
  TY_RETURN_IF_ERROR(written);
  return generation;
}

bool resizing(const v1::JobStatus& status) {
  for (const v1::Condition& condition : status.conditions()) {
    if (condition.type() == "Resizing") return condition.status() == "True";
  }
  return false;
}

bool isThere(const JobView& job, std::int64_t workers, std::int64_t generation) {
  const v1::JobStatus& status = job.job.status();
  return job.state == "Running" && status.observed_generation() >= generation &&
         status.worker().desired() == workers && status.worker().ready() == workers &&
         !resizing(status);
}

}  // namespace

StatusOr<std::string> scaleJob(const fs::path& dir, std::int64_t workers, bool wait, Duration limit,
                               const Clock& clock) {
  const control::RunPaths paths{dir};
  TY_ASSIGN_OR_RETURN(JobView job, readJob(dir));
  TY_RETURN_IF_ERROR(checkCanScale(job));
  const std::int64_t before = job.job.spec().worker().replicas();
  TY_ASSIGN_OR_RETURN(const std::int64_t generation, recordWorkers(paths, workers, clock));
  const std::string change = fmt::format("{}: workers {} -> {}", job.name, before, workers);
  const Patience patience(clock, limit);
  for (;;) {
    TY_ASSIGN_OR_RETURN(job, readJob(dir));
    if (!job.launcher) return fmt::format("{}, from its next start (it is {})", change, job.state);
    if (!wait) return change;
    if (isThere(job, workers, generation)) return fmt::format("{}, step {}", change, job.step);
    TY_RETURN_IF_ERROR(checkCanScale(job));
    if (job.job.spec().worker().replicas() != workers) {
      return absl::FailedPreconditionError(fmt::format(
          "'{}' was scaled to {} workers meanwhile", job.name, job.job.spec().worker().replicas()));
    }
    if (!patience.wait()) {
      return absl::DeadlineExceededError(fmt::format(
          "'{}' does not run with {} workers after {:.0f} s: {} are ready, it is {}", job.name,
          workers, toSeconds(limit), job.job.status().worker().ready(), job.state));
    }
  }
}

}  // namespace trainyard::cli
