#include "base/process/files.h"
#include "cli/jobs/control.h"
#include "cli/jobs/job_view.h"
#include "fmt/format.h"
#include "operator/job/job.h"
#include "operator/local/run_directory.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;
using control::RunPaths;
using control::RunRecord;

constexpr std::size_t kMaxJobBytes = 16 << 20;
constexpr Duration kLook = std::chrono::milliseconds(100);

// The job as given, with other numbers of tasks: checked like any job file.
StatusOr<v1::TrainingJob> rescaled(const control::RunPaths& paths, const Replicas& replicas) {
  TY_ASSIGN_OR_RETURN(const std::string text, readFile(paths.jobYaml(), kMaxJobBytes));
  control::ParseOptions options;
  if (replicas.ps) options.overrides.emplace_back("ps.replicas", fmt::format("{}", *replicas.ps));
  if (replicas.workers)
    options.overrides.emplace_back("worker.replicas", fmt::format("{}", *replicas.workers));
  std::vector<control::JobProblem> problems;
  TY_ASSIGN_OR_RETURN(v1::TrainingJob job,
                      control::parseJob(text, paths.jobYaml().string(), options, &problems));
  TY_RETURN_IF_ERROR(control::checkSupported(job));
  return job;
}

// The generation that holds the numbers.
StatusOr<std::int64_t> recordReplicas(const control::RunPaths& paths, const Replicas& replicas,
                                      const Clock& clock) {
  std::int64_t generation = 0;
  Status written;
  const Status edited = control::RunRecord(paths).edit(clock, [&](v1::TrainingJob* job) {
    generation = job->metadata().generation();
    const auto given = rescaled(paths, replicas);
    written = given.status();
    if (written.ok()) {
      written = writeFileAtomically(paths.jobYaml(), control::toYaml(toJson(*given)));
    }
    if (!written.ok()) return false;
    v1::JobSpec& spec = *job->mutable_spec();
    const v1::JobSpec before = spec;
    if (replicas.ps) spec.mutable_ps()->set_replicas(static_cast<std::int32_t>(*replicas.ps));
    if (replicas.workers)
      spec.mutable_worker()->set_replicas(static_cast<std::int32_t>(*replicas.workers));
    if (before.ps().replicas() == spec.ps().replicas() &&
        before.worker().replicas() == spec.worker().replicas())
      return false;
    ++generation;
    return true;
  });
  TY_RETURN_IF_ERROR(edited);
  TY_RETURN_IF_ERROR(written);
  return generation;
}

// The record of a run directory.
class LocalControl : public JobControl {
 public:
  LocalControl(const fs::path& dir, const Clock& clock) : paths_{dir}, clock_(clock) {}

  std::string shown() const override { return paths_.dir.string(); }
  StatusOr<JobView> read() override { return readJob(paths_.dir); }
  Status setSuspend(bool suspend) override {
    return RunRecord(paths_).edit(clock_, [suspend](v1::TrainingJob* job) {
      if (job->spec().run_policy().suspend() == suspend) return false;
      job->mutable_spec()->mutable_run_policy()->set_suspend(suspend);
      return true;
    });
  }
  StatusOr<bool> suspendAtRest() override {
    const auto lock = FileLock::acquire(paths_.lock());
    if (absl::IsFailedPrecondition(lock.status())) return false;
    TY_RETURN_IF_ERROR(lock.status());
    TY_RETURN_IF_ERROR(setSuspend(true));
    TY_RETURN_IF_ERROR(RunRecord(paths_).restStatus());
    return true;
  }
  StatusOr<std::int64_t> setReplicas(const Replicas& replicas) override {
    return recordReplicas(paths_, replicas, clock_);
  }
  Duration look() const override { return kLook; }

 private:
  const RunPaths paths_;
  const Clock& clock_;
};

}  // namespace

std::unique_ptr<JobControl> controlOf(const fs::path& dir, const Clock& clock) {
  return std::make_unique<LocalControl>(dir, clock);
}

StatusOr<std::string> suspendJob(const fs::path& dir, bool wait, Duration limit,
                                 const Clock& clock) {
  return suspendJob(*controlOf(dir, clock), {wait, limit}, clock);
}

StatusOr<std::string> scaleJob(const fs::path& dir, const Replicas& replicas, bool wait,
                               Duration limit, const Clock& clock) {
  return scaleJob(*controlOf(dir, clock), replicas, {wait, limit}, clock);
}

}  // namespace trainyard::cli
