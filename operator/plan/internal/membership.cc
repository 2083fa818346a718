#include "operator/plan/internal/membership.h"

#include <algorithm>

namespace trainyard::control {

namespace {

bool addEntry(const TaskView& task, v1::Membership* membership) {
  const bool ended = task.finished || task.hasEnded(TaskPhase::kSucceeded);
  if (ended && task.member != nullptr) {
    *membership->add_tasks() = *task.member;
    return true;
  }
  // A worker that finished before the job ever had a membership: nobody can need its address.
  if (task.finished) return true;
  if (!task.hasAddress()) return false;
  v1::MemberTask* entry = membership->add_tasks();
  entry->mutable_id()->set_role(task.key.role);
  entry->mutable_id()->set_index(task.key.index);
  entry->set_created(task.seen->created);
  entry->set_host(task.seen->host);
  entry->set_ip(task.seen->ip);
  entry->set_port(task.seen->port);
  return true;
}

// No newcomer, or one that can be told of.
bool hasCome(const TaskView& task) {
  return !task.desired || task.member != nullptr || task.finished || task.hasAddress();
}

bool sameTasks(const v1::Membership& a, const v1::Membership& b) {
  if (a.tasks_size() != b.tasks_size()) return false;
  for (int i = 0; i < a.tasks_size(); ++i) {
    const v1::MemberTask& x = a.tasks(i);
    const v1::MemberTask& y = b.tasks(i);
    if (x.id().role() != y.id().role() || x.id().index() != y.id().index() ||
        x.created() != y.created() || x.ip() != y.ip() || x.port() != y.port()) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::optional<v1::Membership> nextMembership(const PlannerInput& input,
                                             const std::vector<TaskView>& tasks) {
  const v1::TrainingJob& job = input.observed.job;
  const auto& recorded = input.observed.membership;
  v1::Membership next;
  next.set_job(job.metadata().name());
  next.set_namespace_(job.metadata().namespace_());
  next.set_uid(job.metadata().uid());
  next.set_strategy(job.spec().strategy());
  const bool all_came = !recorded || std::all_of(tasks.begin(), tasks.end(), hasCome);
  const bool shrinks = std::any_of(tasks.begin(), tasks.end(), [](const TaskView& task) {
    return !task.desired && task.member != nullptr;
  });
  for (const TaskView& task : tasks) {
    if (!task.desired || (!all_came && task.member == nullptr)) continue;
    if (addEntry(task, &next)) continue;
    if (!shrinks || task.member == nullptr) return std::nullopt;
    *next.add_tasks() = *task.member;
  }
  if (recorded && sameTasks(*recorded, next)) return std::nullopt;
  next.set_revision(recorded ? recorded->revision() + 1 : 1);
  return next;
}

}  // namespace trainyard::control
