#include "operator/apply/applier.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "fmt/format.h"

namespace trainyard::control {

namespace {

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
  first.Update(releaseTasks(observed.job, plan));
  first.Update(deleteTasks(observed.job, plan));
  first.Update(createTasks(observed.job, plan));
  if (plan.delete_job) first.Update(annotate(cluster_.deleteJob(observed.job), "delete the job"));
  return applied;
}

Applied Applier::writeRecords(const v1::TrainingJob& job, const Plan& plan) {
  if (plan.status) {
    const Status written = asConflict(cluster_.writeStatus(job, *plan.status), "write the status");
    if (!written.ok()) return {.status = written};
    for (const RecordedEvent& event : plan.events) {
      recorder_.record(job, event.type, event.reason, event.message);
    }
  }
  Applied applied{.status = absl::OkStatus(), .status_written = plan.status.has_value()};
  if (plan.publish) {
    applied.status =
        asConflict(cluster_.publish(job, *plan.publish),
                   fmt::format("publish revision {} of the membership", plan.publish->revision()));
  }
  return applied;
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

Status Applier::createSome(const v1::TrainingJob& job, const Plan& plan, std::size_t begin,
                           std::size_t end, std::size_t at_once) {
  std::atomic<std::size_t> next = begin;
  std::mutex mutex;
  Status first;
  const auto work = [&] {
    for (;;) {
      {
        const std::lock_guard lock(mutex);
        if (!first.ok()) return;
      }
      const std::size_t i = next++;
      if (i >= end) return;
      const Status status = createTask(job, plan.creates[i]);
      const std::lock_guard lock(mutex);
      first.Update(status);
    }
  };
  std::vector<std::jthread> threads;
  for (std::size_t i = 1; i < std::min(at_once, end - begin); ++i) threads.emplace_back(work);
  work();
  threads.clear();  // waits for them
  return first;
}

Status Applier::createTasks(const v1::TrainingJob& job, const Plan& plan) {
  const auto most = static_cast<std::size_t>(creates_at_once_);
  const std::size_t all = plan.creates.size();
  std::size_t begun = 0;
  for (std::size_t at_once = 1; begun < all; at_once = std::min(2 * at_once, most)) {
    const std::size_t end = at_once < most ? std::min(begun + at_once, all) : all;
    TY_RETURN_IF_ERROR(createSome(job, plan, begun, end, at_once));
    begun = end;
  }
  return absl::OkStatus();
}

}  // namespace trainyard::control
