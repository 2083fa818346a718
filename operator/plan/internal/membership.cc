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
  return !task.desired || task.spared || task.member != nullptr || task.finished ||
         task.hasAddress();
}

// The record names the life that is there, or was there to the end: the job goes on with it.
bool livesOn(const TaskView& task) {
  return task.member != nullptr &&
         (task.finished || (task.current() && task.seen->created == task.member->created()));
}

// A record of an earlier release has no number; its runtime would not heed one either.
bool sameLength(const v1::Membership& recorded, const v1::Membership& next) {
  return !recorded.has_steps() || recorded.steps() == next.steps();
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

int serversOf(const v1::Membership& membership) {
  return static_cast<int>(
      std::count_if(membership.tasks().begin(), membership.tasks().end(),
                    [](const auto& t) { return t.id().role() == v1::ROLE_PS; }));
}

// The grid of chunks is cut for the servers that the job begins with, and for those that it begins
// without because they have no room yet; `former`: of the job that goes on, if any.
void setGrid(const v1::Membership* former, const std::vector<TaskView>& tasks,
             v1::Membership* next) {
  if (serversOf(*next) == 0) return;
  next->set_grid_ps(
      static_cast<int>(std::count_if(tasks.begin(), tasks.end(), [](const TaskView& task) {
        return task.key.role == v1::ROLE_PS && task.desired;
      })));
  if (former == nullptr) return;
  next->set_grid_ps(former->has_grid_ps() ? former->grid_ps() : serversOf(*former));
}

// By the newest word, also of a life of the coordinator that has ended; status and word count from
// the job's beginning.
void tellProgress(const PlannerInput& input, v1::Membership* next) {
  const v1::JobStatus& status = input.observed.job.status();
  next->set_reached(input.progress ? input.progress->step() : status.progress().step());
  next->set_lost_steps(std::max<std::int64_t>(status.lost_steps(),
                                              input.progress ? input.progress->lost_steps() : 0));
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
  if (job.spec().training().has_steps()) next.set_steps(job.spec().training().steps());
  // A job that begins anew waits for everybody, whoever was recorded.
  const bool begins = !recorded || std::none_of(tasks.begin(), tasks.end(), livesOn);
  const bool all_came = begins || std::all_of(tasks.begin(), tasks.end(), hasCome);
  const bool shrinks = !begins && std::any_of(tasks.begin(), tasks.end(), [](const TaskView& task) {
    return (!task.desired || task.spared) && task.member != nullptr;
  });
  for (const TaskView& task : tasks) {
    if (!task.desired || task.spared || (!all_came && task.member == nullptr)) continue;
    if (addEntry(task, &next)) continue;
    if (!shrinks || task.member == nullptr) return std::nullopt;
    *next.add_tasks() = *task.member;
  }
  if (recorded && sameTasks(*recorded, next) && sameLength(*recorded, next)) return std::nullopt;
  if (job.spec().has_training()) {
    setGrid(begins ? nullptr : &*recorded, tasks, &next);
    tellProgress(input, &next);
  }
  next.set_revision(recorded ? recorded->revision() + 1 : 1);
  return next;
}

}  // namespace trainyard::control
