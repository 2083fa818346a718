// A job's place in a queue for quota: when it may run, with how many tasks, and what the queue is
// told.
#include <algorithm>
#include <string>

#include "fmt/format.h"
#include "operator/cluster/task_keys.h"
#include "operator/plan/internal/planner_state.h"

namespace trainyard::control {

namespace {

// It has a place on a node, or is to get one.
bool takesRoom(const TaskView& task) {
  return task.seen != nullptr && (isLive(*task.seen) || task.seen->terminating);
}

bool anyTakesRoom(const PlannerState& state) {
  return std::any_of(state.tasks.begin(), state.tasks.end(), takesRoom);
}

// No task can be created, whatever is granted: nobody else is to wait for it.
bool cannotBegin(const PlannerState& state) {
  return state.input.observed.obstacle && !anyTakesRoom(state);
}

int needsRoom(const PlannerState& state, v1::Role role) {
  return static_cast<int>(
      std::count_if(state.tasks.begin(), state.tasks.end(), [&](const TaskView& task) {
        return task.key.role == role && ((task.desired && !task.finished) || takesRoom(task));
      }));
}

QuotaClaim claimOf(const v1::JobSpec& spec) {
  QuotaClaim claim;
  claim.ps = spec.ps().replicas();
  claim.workers = spec.worker().replicas();
  // Kueue grants fewer of one set of pods at most: the workers, whatever ps.minReplicas is.
  const bool may_be_fewer = spec.has_training() && spec.worker().has_min_replicas();
  claim.least_workers =
      may_be_fewer ? std::clamp(spec.worker().min_replicas(), 1, std::max(1, claim.workers))
                   : claim.workers;
  return claim;
}

// More than they are now, when so few still need their room.
int done(int recorded, int claimed, int granted, int need) {
  return need < granted ? std::max(recorded, claimed - need) : recorded;
}

void drop(PlannerState& state) {
  state.plan.quota = QuotaStep{.kind = QuotaStep::Kind::kDrop};
}

void claim(PlannerState& state, const QuotaClaim& wanted) {
  const QuotaObservation& quota = *state.input.observed.quota;
  const bool outdated = quota.outdated && !quota.held;
  if (!outdated && quota.claim == wanted) return;
  state.plan.quota = QuotaStep{.kind = QuotaStep::Kind::kClaim, .claim = wanted};
}

// The room of a job that has ended is free as soon as nothing of it runs any more, or what runs may
// stay for ever.
void end(PlannerState& state) {
  const QuotaObservation& quota = *state.input.observed.quota;
  const bool stays = state.spec.run_policy().clean_pod_policy() == "None";
  if (!quota.claim || (anyTakesRoom(state) && !stays)) return;
  QuotaClaim ended = *quota.claim;
  ended.end = state.is(kSucceeded, kTrue) ? QuotaEnd::kSucceeded : QuotaEnd::kFailed;
  claim(state, ended);
}

void tellWhileHeld(PlannerState& state) {
  const QuotaObservation& quota = *state.input.observed.quota;
  QuotaClaim now = *quota.claim;
  now.ready = quota.granted && state.is(kRunning, kTrue);
  now.ps_done = done(now.ps_done, now.ps, now.ps, needsRoom(state, v1::ROLE_PS));
  now.workers_done =
      done(now.workers_done, now.workers, quota.workers_granted, needsRoom(state, v1::ROLE_WORKER));
  claim(state, now);
}

void tellQueue(PlannerState& state) {
  const QuotaObservation& quota = *state.input.observed.quota;
  if (state.isTerminal()) return end(state);
  const bool rests = state.is(kSuspended, kTrue) && !anyTakesRoom(state);
  if (cannotBegin(state)) {
    if (quota.claim) drop(state);
  } else if (quota.claim &&
             (state.spec.run_policy().suspend() || quota.claim->end != QuotaEnd::kOpen)) {
    // Who is suspended keeps nobody waiting.
    if (rests) drop(state);
  } else if (!quota.claim || !quota.held) {
    if (!state.spec.run_policy().suspend()) claim(state, claimOf(state.spec));
  } else if (!quota.withdrawn) {
    tellWhileHeld(state);
  } else if (rests) {
    state.plan.quota = QuotaStep{.kind = QuotaStep::Kind::kGiveBack};
  }
}

// For how many tasks of each role there is room.
struct Room {
  int ps = 0, workers = 0;
};

std::optional<Room> roomOf(const JobObservation& observed) {
  const auto& quota = observed.quota;
  if (!quota || !quota->granted || !quota->claim) return std::nullopt;
  const QuotaClaim& claim = *quota->claim;
  const auto finished =
      parseIndices(observed.job.status().worker().finished_indices()).size();  // need none
  const int workers = std::min(quota->workers_granted, claim.workers - claim.workers_done);
  return Room{std::max(1, claim.ps - claim.ps_done),
              std::max(1, workers + static_cast<int>(finished))};
}

void judgeRoom(PlannerState& state) {
  const v1::JobSpec& wanted = state.wanted;
  const int ps = wanted.ps().replicas() - state.spec.ps().replicas();
  const int workers = wanted.worker().replicas() - state.spec.worker().replicas();
  if (ps <= 0 && workers <= 0) {
    if (state.is(kQuotaLimited, kTrue))
      state.condition(kQuotaLimited, kFalse, "AllGranted", "there is quota for all its tasks");
    return;
  }
  const std::string message = fmt::format(
      "{} ps and {} workers are wanted, and the queue {} grants {} and {}: for more the job has to "
      "be queued again, by runPolicy.suspend",
      wanted.ps().replicas(), wanted.worker().replicas(), state.input.observed.quota->queue,
      state.spec.ps().replicas(), state.spec.worker().replicas());
  if (!state.is(kQuotaLimited, kTrue)) state.event("Warning", "FewerGranted", message);
  state.condition(kQuotaLimited, kTrue, "FewerGranted", message);
}

}  // namespace

std::optional<PlannerInput> withinQuota(const PlannerInput& input) {
  const auto room = roomOf(input.observed);
  const v1::JobSpec& spec = input.observed.job.spec();
  if (!room || (spec.ps().replicas() <= room->ps && spec.worker().replicas() <= room->workers))
    return std::nullopt;
  PlannerInput within = input;
  v1::JobSpec* less = within.observed.job.mutable_spec();
  if (spec.ps().replicas() > room->ps) less->mutable_ps()->set_replicas(room->ps);
  if (spec.worker().replicas() > room->workers) less->mutable_worker()->set_replicas(room->workers);
  return within;
}

bool lacksQuota(const PlannerState& state) {
  const auto& quota = state.input.observed.quota;
  return quota && !cannotBegin(state) && (!quota->granted || quota->withdrawn);
}

std::string whyWithoutQuota(const PlannerState& state) {
  const JobObservation& observed = state.input.observed;
  const QuotaObservation& quota = *observed.quota;
  const std::string& word = observed.refusal ? observed.refusal->message : quota.message;
  return fmt::format("{} the queue {}{}{}",
                     quota.withdrawn ? "it loses its quota of" : "it waits for quota of",
                     quota.queue, word.empty() ? "" : ": ", word);
}

void judgeQuota(PlannerState& state) {
  if (!state.input.observed.quota) return;
  tellQueue(state);
  if (!state.isTerminal()) judgeRoom(state);
}

}  // namespace trainyard::control
