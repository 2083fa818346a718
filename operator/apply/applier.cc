#include "operator/apply/applier.h"

#include "fmt/format.h"

namespace trainyard::control {

namespace {

// A refused precondition is no fault of the job: someone else wrote first.
Status asConflict(const Status& status, std::string_view what) {
  if (status.code() != absl::StatusCode::kFailedPrecondition) return annotate(status, what);
  return absl::AbortedError(fmt::format("{}: {}", what, std::string(status.message())));
}

}  // namespace

Status Applier::apply(const JobObservation& observed, const Plan& plan) {
  TY_RETURN_IF_ERROR(writeRecords(observed.job, plan));
  const Status deleted = deleteTasks(observed.job, plan);
  const Status created = createTasks(observed.job, plan);
  return deleted.ok() ? created : deleted;
}

Status Applier::writeRecords(const v1::TrainingJob& job, const Plan& plan) {
  if (plan.status) {
    TY_RETURN_IF_ERROR(asConflict(cluster_.writeStatus(job, *plan.status), "write the status"));
    for (const RecordedEvent& event : plan.events) {
      recorder_.record(job, event.type, event.reason, event.message);
    }
  }
  if (plan.publish) {
    TY_RETURN_IF_ERROR(
        asConflict(cluster_.publish(job, *plan.publish),
                   fmt::format("publish revision {} of the membership", plan.publish->revision())));
  }
  return absl::OkStatus();
}

Status Applier::deleteTasks(const v1::TrainingJob& job, const Plan& plan) {
  Status first;
  for (const DeleteTask& task : plan.deletes) {
    const Status status = cluster_.deleteTask(job, task.key, task.created);
    if (status.ok() || status.code() == absl::StatusCode::kNotFound) continue;
    if (first.ok()) first = annotate(status, fmt::format("delete {}", toString(task.key)));
  }
  return first;
}

Status Applier::createTasks(const v1::TrainingJob& job, const Plan& plan) {
  for (const CreateTask& task : plan.creates) {
    const Status status = cluster_.createTask(job, task.key, task.created);
    if (status.ok() || status.code() == absl::StatusCode::kAlreadyExists) continue;
    return annotate(status, fmt::format("create {}", toString(task.key)));
  }
  return absl::OkStatus();
}

}  // namespace trainyard::control
