#include "operator/plan/internal/job_view.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/core/rfc3339.h"
#include "operator/cluster/task_keys.h"

namespace trainyard::control {

namespace {

using ViewMap = std::map<TaskKey, TaskView>;

TaskView& viewOf(ViewMap& views, const TaskKey& key) {
  TaskView& view = views[key];
  view.key = key;
  return view;
}

void addDesired(ViewMap& views, v1::Role role, std::int32_t replicas) {
  for (std::int32_t i = 0; i < replicas; ++i) {
    viewOf(views, {role, static_cast<std::uint32_t>(i)}).desired = true;
  }
}

// Who goes on before others do: worker-0, those who belong to the job already, of these the highest
// deletion cost, the lowest index. Among those who have not joined yet the cost does not count: the
// indices would get holes by who happens to be created first.
bool staysBefore(const TaskView& a, const TaskView& b) {
  const auto order = [](const TaskView& task) {
    const bool counts = task.belongs() && task.current();
    const std::int64_t cost = counts ? task.seen->deletion_cost : 0;
    return std::tuple(task.key.index != 0, !task.belongs(), -cost, task.key.index);
  };
  return order(a) < order(b);
}

// Those who belong to the job go on, as many of them as are wanted; then the lowest free indices,
// whether a task of that index is on its way already or its former life has yet to go. The choice
// is the same at the next look: who was let go does not belong any more.
void chooseWorkers(ViewMap& views, std::int32_t replicas) {
  for (std::int32_t i = 0; i < replicas; ++i)
    viewOf(views, {v1::ROLE_WORKER, static_cast<std::uint32_t>(i)});
  std::vector<TaskView*> workers;
  for (auto& [key, view] : views) {
    if (key.role == v1::ROLE_WORKER) workers.push_back(&view);
  }
  std::sort(workers.begin(), workers.end(),
            [](const TaskView* a, const TaskView* b) { return staysBefore(*a, *b); });
  workers.resize(static_cast<std::size_t>(replicas));  // there are that many at least
  for (TaskView* worker : workers) worker->desired = true;
}

void addRecords(ViewMap& views, const v1::JobStatus& status) {
  for (const v1::TaskRecord& record : status.tasks()) {
    const auto key = parseTaskKey(record.task());
    if (!key) continue;
    TaskHistory& history = viewOf(views, *key).history;
    history.created = static_cast<std::uint32_t>(std::max(1, record.created()));
    history.restarts = record.restarts();
    history.in_place = static_cast<std::uint32_t>(std::max(0, record.in_place()));
    history.recent = record.recent();
    history.create_ms = parseRfc3339(record.create_time());
  }
}

void markListed(ViewMap& views, v1::Role role, const v1::RoleStatus& status) {
  for (const std::uint32_t index : parseIndices(status.indices())) {
    viewOf(views, {role, index}).listed = true;
  }
}

// A higher number than the recorded one is a life that the record does not know: what was counted
// of the former life does not belong to it.
void adopt(TaskView& view, std::uint32_t created) {
  if (created <= view.history.created) return;
  view.history.created = created;
  view.history.in_place = 0;
}

}  // namespace

bool isLive(const TaskObservation& task) {
  return !task.terminating &&
         (task.phase == TaskPhase::kPending || task.phase == TaskPhase::kRunning);
}

bool TaskView::lives() const {
  return current() && isLive(*seen);
}

std::vector<TaskView> viewTasks(const PlannerInput& input) {
  const JobObservation& observed = input.observed;
  ViewMap views;
  addRecords(views, observed.job.status());
  if (observed.membership) {
    for (const v1::MemberTask& member : observed.membership->tasks()) {
      TaskView& view = viewOf(views, {member.id().role(), member.id().index()});
      view.member = &member;
      adopt(view, member.created());
    }
  }
  for (const TaskObservation& task : observed.tasks) {
    TaskView& view = viewOf(views, task.key);
    view.seen = &task;
    adopt(view, task.created);
  }
  const v1::JobStatus& status = observed.job.status();
  for (const std::uint32_t index : parseIndices(status.worker().finished_indices())) {
    viewOf(views, {v1::ROLE_WORKER, index}).finished = true;
  }
  markListed(views, v1::ROLE_PS, status.ps());
  markListed(views, v1::ROLE_WORKER, status.worker());
  const v1::JobSpec& spec = observed.job.spec();
  addDesired(views, v1::ROLE_PS, spec.ps().replicas());
  // Programs of the user's own are told ranks without gaps.
  if (spec.has_training()) {
    chooseWorkers(views, spec.worker().replicas());
  } else {
    addDesired(views, v1::ROLE_WORKER, spec.worker().replicas());
  }
  std::vector<TaskView> tasks;
  tasks.reserve(views.size());
  for (auto& [key, view] : views) tasks.push_back(view);
  return tasks;
}

void recordHistories(const std::vector<TaskView>& tasks, v1::JobStatus* status) {
  status->clear_tasks();
  for (const TaskView& task : tasks) {
    const TaskHistory& history = task.history;
    // The membership tells the number of its tasks, and a first life needs no record; but a task
    // that is not wanted any more leaves the membership.
    const std::uint32_t member = task.member != nullptr ? task.member->created() : 1u;
    const std::uint32_t derived = task.desired ? member : 0u;
    const bool plain = history.restarts == 0 && history.recent == 0 && history.in_place == 0;
    if (plain && history.created <= derived) continue;
    v1::TaskRecord* record = status->add_tasks();
    record->set_task(toString(task.key));
    record->set_created(static_cast<std::int32_t>(history.created));
    if (history.restarts != 0) record->set_restarts(history.restarts);
    if (history.in_place != 0) record->set_in_place(static_cast<std::int32_t>(history.in_place));
    if (history.recent != 0) record->set_recent(history.recent);
    if (history.create_ms != 0) record->set_create_time(formatRfc3339(history.create_ms, 3));
  }
}

}  // namespace trainyard::control
