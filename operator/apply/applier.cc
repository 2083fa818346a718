#include "operator/apply/applier.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "fmt/format.h"

namespace trainyard::control {

namespace {

constexpr std::size_t kMaxAtOnce = 50;

// A refused precondition is no fault of the job: someone else wrote first.
Status asConflict(const Status& status, std::string_view what) {
  if (status.code() != absl::StatusCode::kFailedPrecondition) return annotate(status, what);
  return absl::AbortedError(fmt::format("{}: {}", what, std::string(status.message())));
}

}  // namespace

Status Applier::apply(const JobObservation& observed, const Plan& plan) {
  TY_RETURN_IF_ERROR(writeRecords(observed.job, plan));
  Status first = releaseTasks(observed.job, plan);
  first.Update(deleteTasks(observed.job, plan));
  first.Update(createTasks(observed.job, plan));
  if (plan.delete_job) first.Update(annotate(cluster_.deleteJob(observed.job), "delete the job"));
  return first;
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

Status Applier::releaseTasks(const v1::TrainingJob& job, const Plan& plan) {
  Status first;
  for (const ReleaseTask& task : plan.releases) {
    const Status status = cluster_.releaseTask(job, task.key, task.created);
    if (status.ok() || status.code() == absl::StatusCode::kNotFound) continue;
    first.Update(annotate(status, fmt::format("release {}", toString(task.key))));
  }
  return first;
}

Status Applier::createTask(const v1::TrainingJob& job, const CreateTask& task) {
  const Status status = cluster_.createTask(job, task.key, task.created);
  if (status.ok() || status.code() == absl::StatusCode::kAlreadyExists) return absl::OkStatus();
  return annotate(status, fmt::format("create {}", toString(task.key)));
}

Status Applier::createTasks(const v1::TrainingJob& job, const Plan& plan) {
  std::size_t begun = 0;
  for (std::size_t batch = 1; begun < plan.creates.size();
       batch = std::min(2 * batch, kMaxAtOnce)) {
    const std::size_t count = std::min(batch, plan.creates.size() - begun);
    std::vector<Status> results(count);
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < count; ++i) {
      threads.emplace_back([&, i] { results[i] = createTask(job, plan.creates[begun + i]); });
    }
    results[0] = createTask(job, plan.creates[begun]);
    threads.clear();  // waits for them
    for (const Status& status : results) TY_RETURN_IF_ERROR(status);
    begun += count;
  }
  return absl::OkStatus();
}

}  // namespace trainyard::control
