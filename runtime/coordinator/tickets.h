// The modes in which a worker asks before it pushes: places among the first gradients of a step
// (backup workers), tickets and samples (asynchronous modes). Its questions wait here for their
// answers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/core/clock.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/coordinator/coordinator_config.h"
#include "runtime/coordinator/job_steps.h"
#include "runtime/coordinator/member.h"
#include "runtime/coordinator/membership.h"
#include "runtime/coordinator/outbox.h"
#include "runtime/coordinator/push_tickets.h"
#include "runtime/coordinator/step_places.h"
#include "runtime/data/step_plan.h"
#include "trainyard/v1/agent.pb.h"
#include "trainyard/v1/coordinator.pb.h"

namespace trainyard::runtime {

// Not thread-safe.
class Tickets {
 public:
  explicit Tickets(const CoordinatorConfig& config);

  // The job's pushes, in the asynchronous modes; else null.
  const PushTickets* pushes() const { return pushes_ ? &*pushes_ : nullptr; }
  // Backup workers: the first step that still lacks gradients.
  std::int64_t openStep() const { return places_.step(); }
  // Whether workers ask in an epoch of this plan.
  bool asked(const StepPlan& plan) const { return pushes_ || plan.backup_workers > 0; }

  // A question of a worker of `epoch`, which runs. True: follow() may have its answer.
  bool ask(const v1::TakeRequest& request, std::uint64_t call, std::int64_t epoch, TimePoint now,
           Outbox& out);
  // It is of somebody else, or of another epoch.
  static void refuse(std::uint64_t call, std::int64_t epoch, Outbox& out);
  // Answers all that can be answered; who waits longer than a heartbeat is asked to come again.
  void follow(std::int64_t epoch, TimePoint now, Outbox& out);
  // What a worker of the epoch that runs says of itself.
  void onReport(std::uint32_t worker, const v1::WorkerState& state);

  // Nobody begins a push or a step any more, but for what is begun already. True: somebody could.
  bool drain();
  void resume();
  // As drain(), for good: what an update lacks it does without.
  void stop();

  // Nobody of `epoch` gets an answer any more.
  void endEpoch(std::int64_t epoch, Outbox& out);
  // Asynchronous: what was pushed until an epoch of a former coordinator ended, which servers and
  // replicas that hold its history know, and its workers.
  void adopt(const v1::EpochInfo& epoch, const Membership& membership);
  // Asynchronous: completes the announcement of an epoch, whose members are in the membership.
  // `kept`: it goes on from what is held, and this says where; else from where the announcement
  // says, with the samples before it that nobody has pushed.
  PushTickets::Start startEpoch(bool kept, const std::vector<SampleRange>& unread,
                                const Membership& membership, const JobSteps& steps,
                                v1::EpochInfo& epoch, Outbox& out);
  // The epoch computes from now on.
  void begin(const StepPlan& plan);

  void tell(v1::View& view) const;
  void tell(v1::JobProgress& progress) const;

 private:
  // The newest question of a worker under the epoch that runs.
  struct Take {
    v1::TakeRequest request;
    std::optional<std::uint64_t> call;  // waits for its answer
    TimePoint since{};
    bool waited = false;  // was not answered at once
    std::optional<v1::TakeReply> reply;
  };
  std::optional<v1::TakeReply> answer(const v1::TakeRequest& request);
  static void send(Take& take, v1::TakeReply reply, std::int64_t epoch, Outbox& out);
  std::vector<PushTickets::Worker> workersOf(const Membership& membership,
                                             std::int64_t lineage) const;

  const Duration heartbeat_;
  const int aggregate_;
  std::map<std::uint32_t, Take> takes_;
  StepPlaces places_;
  std::optional<PushTickets> pushes_;
  std::map<std::uint32_t, v1::Incarnation> computed_;  // workers of the newest epoch that began
};

}  // namespace trainyard::runtime
