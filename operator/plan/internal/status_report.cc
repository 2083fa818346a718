#include "operator/plan/internal/status_report.h"

#include <algorithm>
#include <set>

#include "base/core/rfc3339.h"
#include "fmt/format.h"
#include "google/protobuf/util/message_differencer.h"
#include "operator/cluster/task_keys.h"
#include "operator/plan/internal/conditions.h"
#include "operator/plan/internal/planner_state.h"

namespace trainyard::control {

namespace {

v1::RoleStatus reportRole(const v1::TrainingJob& job, v1::Role role,
                          const std::vector<TaskView>& tasks, bool succeeded) {
  // `there` also remembers which numbers are used: a task that is listed and gone was lost.
  std::set<std::uint32_t> there, finished;
  int desired = 0, live = 0, ready = 0, ended = 0, failed = 0;
  for (const TaskView& task : tasks) {
    if (task.key.role != role) continue;
    desired += task.desired ? 1 : 0;
    if (task.finished) {
      finished.insert(task.key.index);
    } else if (task.current()) {
      there.insert(task.key.index);
    }
    live += task.lives() ? 1 : 0;
    ready += task.isReady() ? 1 : 0;
    ended += task.hasEnded(TaskPhase::kSucceeded) ? 1 : 0;
    failed += task.hasEnded(TaskPhase::kFailed) ? 1 : 0;
  }
  v1::RoleStatus status;
  status.set_desired(desired);
  status.set_replicas(live);
  status.set_ready(ready);
  status.set_readiness(fmt::format("{}/{}", ready, desired));
  // Only workers finish; a ps that ended with success is counted while it is there. One that is not
  // ours serves for ever: it has done its part when the job has succeeded.
  const bool served = role == v1::ROLE_PS && !job.spec().has_training() && succeeded;
  if (served) ended = std::max(0, desired - live - failed);
  status.set_succeeded(role == v1::ROLE_WORKER ? static_cast<int>(finished.size()) : ended);
  status.set_failed(failed);
  if (!there.empty()) status.set_indices(formatIndices(there));
  if (!finished.empty()) status.set_finished_indices(formatIndices(finished));
  status.set_selector(fmt::format("trainyard.dev/job-name={},trainyard.dev/role={}",
                                  job.metadata().name(), roleName(role)));
  return status;
}

v1::ProgressStatus describe(const v1::JobProgress& progress) {
  v1::ProgressStatus status;
  status.set_step(progress.step());
  if (progress.steps() > 0) status.set_steps(progress.steps());
  status.set_examples_per_second(fmt::format("{:.0f}", progress.examples_per_second()));
  if (progress.has_loss()) status.set_loss(fmt::format("{:.4g}", progress.loss()));
  if (progress.evaluated()) status.set_accuracy(fmt::format("{:.4f}", progress.accuracy()));
  return status;
}

// From the steps done since the block was last written: a job's pace hours ago says nothing.
void estimateEnd(const v1::ProgressStatus& before, UnixMillis now, v1::ProgressStatus* next) {
  const double seconds = static_cast<double>(now - parseRfc3339(before.update_time())) / 1000.0;
  const auto done = static_cast<double>(next->step() - before.step());
  if (!before.has_update_time() || !next->has_steps() || seconds <= 0 || done <= 0) return;
  const auto left = static_cast<double>(std::max<std::int64_t>(0, next->steps() - next->step()));
  next->set_eta_seconds(static_cast<std::int64_t>(left / done * seconds));
}

// Not once more where it was written after it had become due, nor shortly before.
bool progressDue(const PlannerInput& input, const v1::ProgressStatus& written) {
  if (!input.progress_due) return false;
  const UnixMillis due = input.unix_ms - toMillis(input.now - *input.progress_due);
  return due - parseRfc3339(written.update_time()) >= toMillis(kProgressInterval / 2);
}

bool saysTheSame(v1::ProgressStatus a, v1::ProgressStatus b) {
  for (v1::ProgressStatus* status : {&a, &b}) {
    status->clear_update_time();
    status->clear_eta_seconds();
  }
  return google::protobuf::util::MessageDifferencer::Equals(a, b);
}

void forgetCounts(const v1::RoleStatus& recorded, bool indices, v1::RoleStatus* role) {
  role->set_replicas(recorded.replicas());
  role->set_ready(recorded.ready());
  role->set_readiness(recorded.readiness());
  if (!indices) return;
  role->clear_indices();
  if (recorded.has_indices()) role->set_indices(recorded.indices());
}

}  // namespace

bool onlyCounts(const v1::JobStatus& recorded, v1::JobStatus next, bool indices) {
  if (!recorded.has_ps() || !recorded.has_worker()) return false;
  forgetCounts(recorded.ps(), indices, next.mutable_ps());
  forgetCounts(recorded.worker(), indices, next.mutable_worker());
  for (v1::Condition& condition : *next.mutable_conditions()) {
    const v1::Condition* before = findCondition(recorded, condition.type());
    if (before == nullptr || before->reason() != condition.reason()) continue;
    condition.set_message(before->message());
  }
  return google::protobuf::util::MessageDifferencer::Equals(recorded, next);
}

void reportRoles(const v1::TrainingJob& job, const std::vector<TaskView>& tasks,
                 v1::JobStatus* status) {
  const bool succeeded = hasStatus(*status, kSucceeded, kTrue);
  *status->mutable_ps() = reportRole(job, v1::ROLE_PS, tasks, succeeded);
  *status->mutable_worker() = reportRole(job, v1::ROLE_WORKER, tasks, succeeded);
}

void reportProgress(const v1::JobProgress& progress, const PlannerInput& input, bool state_changed,
                    v1::JobStatus* status) {
  if (progress.epoch() > status->membership().epoch()) {
    status->mutable_membership()->set_epoch(progress.epoch());
  }
  if (progress.lost_steps() > status->lost_steps()) status->set_lost_steps(progress.lost_steps());
  if (progress.has_checkpoint()) {
    status->mutable_checkpoint()->set_step(progress.checkpoint_step());
    status->mutable_checkpoint()->set_time(formatRfc3339(progress.checkpoint_unix_ms()));
  }
  v1::ProgressStatus next = describe(progress);
  if (saysTheSame(next, status->progress())) return;
  // The last word is not kept back.
  const bool at_once = !status->has_progress() || state_changed || !progress.outcome().empty();
  if (!at_once && !progressDue(input, status->progress())) return;
  estimateEnd(status->progress(), input.unix_ms, &next);
  next.set_update_time(formatRfc3339(input.unix_ms));
  *status->mutable_progress() = next;
}

}  // namespace trainyard::control
