#include "cli/jobs/control.h"
#include "cli/jobs/job_view.h"
#include "cli/jobs/patience.h"
#include "fmt/format.h"

namespace trainyard::cli {
namespace {

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

StatusOr<std::string> scaleJob(JobControl& control, std::int64_t workers, const Waiting& waiting,
                               const Clock& clock) {
  TY_ASSIGN_OR_RETURN(JobView job, control.read());
  TY_RETURN_IF_ERROR(checkCanScale(job));
  const std::int64_t before = job.job.spec().worker().replicas();
  TY_ASSIGN_OR_RETURN(const std::int64_t generation, control.setWorkers(workers));
  const std::string change = fmt::format("{}: workers {} -> {}", job.name, before, workers);
  const Patience patience(clock, waiting.limit, control.look());
  for (;;) {
    TY_ASSIGN_OR_RETURN(job, control.read());
    if (!job.attended())
      return fmt::format("{}, from its next start (it is {})", change, job.state);
    if (!waiting.wait) return change;
    if (isThere(job, workers, generation)) return fmt::format("{}, step {}", change, job.step);
    TY_RETURN_IF_ERROR(checkCanScale(job));
    if (job.job.spec().worker().replicas() != workers) {
      return absl::FailedPreconditionError(fmt::format(
          "'{}' was scaled to {} workers meanwhile", job.name, job.job.spec().worker().replicas()));
    }
    if (!patience.wait()) {
      return absl::DeadlineExceededError(fmt::format(
          "'{}' does not run with {} workers after {:.0f} s: {} are ready, it is {}", job.name,
          workers, toSeconds(waiting.limit), job.job.status().worker().ready(), job.state));
    }
  }
}

}  // namespace trainyard::cli
