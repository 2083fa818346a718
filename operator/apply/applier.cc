#include "operator/apply/applier.h"

#include <algorithm>
#include <mutex>

#include "fmt/format.h"

namespace trainyard::control {

namespace {

// Of how many tasks are created side by side, from one on, as long as none is refused.
constexpr std::size_t kGrowth = 4;

// A refused precondition is no fault of the job: someone else wrote first.
Status asConflict(const Status& status, std::string_view what) {
  if (status.code() != absl::StatusCode::kFailedPrecondition) return annotate(status, what);
  return absl::AbortedError(fmt::format("{}: {}", what, std::string(status.message())));
}

}  // namespace

Applied Applier::apply(const JobObservation& observed, const Plan& plan) {
  Applied applied = writeRecords(observed.job, plan);
  if (!applied.status.ok()) return applied;
  Status& first = applied.status;
  if (plan.quota) first.Update(tellQueue(observed.job, *plan.quota));
  first.Update(releaseTasks(observed.job, plan));
  first.Update(deleteTasks(observed.job, plan));
  first.Update(forgetTasks(observed.job, plan));
  first.Update(dropVolumeClaims(observed.job, plan));
  first.Update(createTasks(observed.job, plan));
  if (plan.delete_job) first.Update(annotate(cluster_.deleteJob(observed.job), "delete the job"));
  return applied;
}

Status Applier::publish(const v1::TrainingJob& job, const v1::Membership& membership) {
  return asConflict(cluster_.publish(job, membership),
                    fmt::format("publish revision {} of the membership", membership.revision()));
}

Applied Applier::writeRecords(const v1::TrainingJob& job, const Plan& plan) {
  const bool publishes_first = plan.publish && plan.publish->revision() == 1;
  if (publishes_first) {
    const Status published = publish(job, *plan.publish);
    if (!published.ok()) return {.status = published};
  }
  if (plan.status) {
    const Status written = asConflict(cluster_.writeStatus(job, *plan.status), "write the status");
    if (!written.ok()) return {.status = written};
    for (const RecordedEvent& event : plan.events) {
      recorder_.record(job, event.type, event.reason, event.message);
    }
  }
  Applied applied{.status = absl::OkStatus(), .status_written = plan.status.has_value()};
  if (plan.publish && !publishes_first) applied.status = publish(job, *plan.publish);
  return applied;
}

Status Applier::tellQueue(const v1::TrainingJob& job, const QuotaStep& step) {
  switch (step.kind) {
    case QuotaStep::Kind::kClaim:
      return asConflict(cluster_.claimQuota(job, step.claim), "claim quota");
    case QuotaStep::Kind::kGiveBack:
      return asConflict(cluster_.giveQuotaBack(job), "give quota back");
    case QuotaStep::Kind::kDrop:
      break;
  }
  return asConflict(cluster_.dropClaim(job), "leave the queue");
}

Status Applier::eachTask(std::size_t count, std::size_t at_once, AfterFailure after,
                         const std::function<Status(std::size_t)>& act) {
  std::mutex mutex;
  Status first;
  helpers_.forEach(count, at_once, [&](std::size_t i) {
    const Status status =
        held_back_ ? absl::UnavailableError("nothing more is begun: the controller ends") : act(i);
    const std::lock_guard lock(mutex);
    first.Update(status);
    return first.ok() || after == AfterFailure::kGoOn;
  });
  return first;
}

Status Applier::deleteTasks(const v1::TrainingJob& job, const Plan& plan) {
  return eachTask(plan.deletes.size(), at_once_, AfterFailure::kGoOn, [&](std::size_t i) {
    const DeleteTask& task = plan.deletes[i];
    const Status status = cluster_.deleteTask(job, task.key, task.created);
    if (absl::IsNotFound(status)) return absl::OkStatus();
    return annotate(status, fmt::format("delete {}", toString(task.key)));
  });
}

Status Applier::forgetTasks(const v1::TrainingJob& job, const Plan& plan) {
  return eachTask(plan.forgets.size(), at_once_, AfterFailure::kGoOn, [&](std::size_t i) {
    const ForgetTask& task = plan.forgets[i];
    const Status status = cluster_.forgetTask(job, task.key, task.created);
    if (absl::IsNotFound(status)) return absl::OkStatus();
    return annotate(status, fmt::format("forget {}", toString(task.key)));
  });
}

Status Applier::releaseTasks(const v1::TrainingJob& job, const Plan& plan) {
  return eachTask(plan.releases.size(), at_once_, AfterFailure::kGoOn, [&](std::size_t i) {
    const ReleaseTask& task = plan.releases[i];
    const Status status = cluster_.releaseTask(job, task.key, task.created);
    if (absl::IsNotFound(status)) return absl::OkStatus();
    return annotate(status, fmt::format("release {}", toString(task.key)));
  });
}

Status Applier::dropVolumeClaims(const v1::TrainingJob& job, const Plan& plan) {
  return eachTask(plan.claim_drops.size(), at_once_, AfterFailure::kGoOn, [&](std::size_t i) {
    const TaskKey& task = plan.claim_drops[i];
    return annotate(cluster_.dropVolumeClaims(job, task),
                    fmt::format("drop the volume claims of {}", toString(task)));
  });
}

Status Applier::createTask(const v1::TrainingJob& job, const CreateTask& task) {
  const Status status = cluster_.createTask(job, task.key, task.created);
  if (absl::IsAlreadyExists(status)) return absl::OkStatus();
  return annotate(status, fmt::format("create {}", toString(task.key)));
}

Status Applier::createTasks(const v1::TrainingJob& job, const Plan& plan) {
  const std::size_t all = plan.creates.size();
  std::size_t begun = 0;
  for (std::size_t at_once = 1; begun < all; at_once = std::min(kGrowth * at_once, at_once_)) {
    const std::size_t end = at_once < at_once_ ? std::min(begun + at_once, all) : all;
    TY_RETURN_IF_ERROR(
        eachTask(end - begun, at_once, AfterFailure::kStop,
                 [&, begun](std::size_t i) { return createTask(job, plan.creates[begun + i]); }));
    begun = end;
  }
  return absl::OkStatus();
}

}  // namespace trainyard::control
