#include <algorithm>
#include <string_view>
#include <vector>

#include "base/core/strings.h"
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

Status checkServers(const JobView& job) {
  if (job.job.spec().strategy() != "AllReduce") return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("'{}' has no parameter servers", job.name));
}

bool resizing(const v1::JobStatus& status) {
  for (const v1::Condition& condition : status.conditions()) {
    if (condition.type() == "Resizing") return condition.status() == "True";
  }
  return false;
}

// One role's part of the wish.
struct Wish {
  std::string_view name;
  std::int64_t wanted = 0;
  std::int64_t before = 0;
  std::int64_t recorded(const v1::JobSpec& spec) const {
    return name == "ps" ? spec.ps().replicas() : spec.worker().replicas();
  }
  const v1::RoleStatus& of(const v1::JobStatus& status) const {
    return name == "ps" ? status.ps() : status.worker();
  }
};

std::vector<Wish> wishesOf(const Replicas& replicas, const v1::JobSpec& spec) {
  std::vector<Wish> wishes;
  if (replicas.ps) wishes.push_back({"ps", *replicas.ps, spec.ps().replicas()});
  if (replicas.workers) wishes.push_back({"workers", *replicas.workers, spec.worker().replicas()});
  return wishes;
}

// "ps 2 -> 3, workers 2 -> 4"
std::string changeText(const std::vector<Wish>& wishes) {
  std::vector<std::string> parts;
  for (const Wish& wish : wishes)
    parts.push_back(fmt::format("{} {} -> {}", wish.name, wish.before, wish.wanted));
  return join(parts, ", ");
}

bool isThere(const JobView& job, const std::vector<Wish>& wishes, std::int64_t generation) {
  const v1::JobStatus& status = job.job.status();
  const bool there = std::all_of(wishes.begin(), wishes.end(), [&](const Wish& wish) {
    return wish.of(status).desired() == wish.wanted && wish.of(status).ready() == wish.wanted;
  });
  return there && job.state == "Running" && status.observed_generation() >= generation &&
         !resizing(status);
}

// Somebody else has asked for another number.
Status checkStillWanted(const JobView& job, const std::vector<Wish>& wishes) {
  for (const Wish& wish : wishes) {
    const std::int64_t now = wish.recorded(job.job.spec());
    if (now == wish.wanted) continue;
    return absl::FailedPreconditionError(
        fmt::format("'{}' was scaled to {} {} meanwhile", job.name, now, wish.name));
  }
  return absl::OkStatus();
}

std::string notThere(const JobView& job, const std::vector<Wish>& wishes, Duration limit) {
  std::vector<std::string> wanted, ready;
  for (const Wish& wish : wishes) {
    wanted.push_back(fmt::format("{} {}", wish.wanted, wish.name));
    ready.push_back(fmt::format("{}", wish.of(job.job.status()).ready()));
  }
  return fmt::format("'{}' does not run with {} after {:.0f} s: {} are ready, it is {}", job.name,
                     join(wanted, " and "), toSeconds(limit), join(ready, " and "), job.state);
}

}  // namespace

StatusOr<std::string> scaleJob(JobControl& control, const Replicas& replicas,
                               const Waiting& waiting, const Clock& clock) {
  TY_ASSIGN_OR_RETURN(JobView job, control.read());
  TY_RETURN_IF_ERROR(checkCanScale(job));
  if (replicas.ps) TY_RETURN_IF_ERROR(checkServers(job));
  const std::vector<Wish> wishes = wishesOf(replicas, job.job.spec());
  TY_ASSIGN_OR_RETURN(const std::int64_t generation, control.setReplicas(replicas));
  const std::string change = fmt::format("{}: {}", job.name, changeText(wishes));
  const Patience patience(clock, waiting.limit, control.look());
  for (;;) {
    TY_ASSIGN_OR_RETURN(job, control.read());
    if (!job.attended())
      return fmt::format("{}, from its next start (it is {})", change, job.state);
    if (!waiting.wait) return change;
    if (isThere(job, wishes, generation)) return fmt::format("{}, step {}", change, job.step);
    TY_RETURN_IF_ERROR(checkCanScale(job));
    TY_RETURN_IF_ERROR(checkStillWanted(job, wishes));
    if (!patience.wait()) return absl::DeadlineExceededError(notThere(job, wishes, waiting.limit));
  }
}

}  // namespace trainyard::cli
