// The coordinator of a job: who computes together (epochs), from which state, when to take a
// checkpoint, when to stop. A pure state machine: reports and time in, actions out.
//
//   SEALING --all present, sealed--> PREPARING --all ps prepared--> ACTIVE --steps taken,
//   evaluated,
//      ^                                |                              |     final checkpoint-->
//      DONE
//      |________ member lost or new ____|______________________________|
//   ACTIVE --requestStop--> STOPPING --workers idle, checkpoint--> STOPPED;  any --abort--> FAILED
//
// Each concept is a class of its own, whose header says what it does; this one owns them and has
// them do their parts in order.
//
// A coordinator that starts again knows nothing of the epoch that ran. The others tell it
// (MemberReport.begun), so that it decides as the former one would have.
//
// Workers that the membership brings or takes away while the job computes change at a step
// boundary: the epoch goes on until all new ones have reported, then the workers hold after their
// step, and the next epoch starts where they rest. Nothing that was computed is lost. Another
// number of steps is taken over in the same way; one that is passed already ends the job where the
// workers rest. After the job's last step it comes too late.
//
// Servers that the membership brings or takes away change at a step boundary too: the next epoch
// has another map of chunks to servers, and whoever is to hold a chunk fetches it from its former
// holder before the epoch begins. A server that leaves is let go when it has: until then the former
// map holds. The coordinator's own server stays.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/coordinator/actions.h"
#include "runtime/coordinator/checkpoints.h"
#include "runtime/coordinator/coordinator_config.h"
#include "runtime/coordinator/epochs.h"
#include "runtime/coordinator/evaluations.h"
#include "runtime/coordinator/gradient_norm.h"
#include "runtime/coordinator/group_failures.h"
#include "runtime/coordinator/job_steps.h"
#include "runtime/coordinator/membership.h"
#include "runtime/coordinator/outbox.h"
#include "runtime/coordinator/progress.h"
#include "runtime/coordinator/rest.h"
#include "runtime/coordinator/stop_request.h"
#include "runtime/coordinator/tickets.h"
#include "trainyard/v1/agent.pb.h"
#include "trainyard/v1/coordinator.pb.h"
#include "trainyard/v1/measurements.pb.h"

namespace trainyard::runtime {

// Not thread-safe.
class Coordinator {
 public:
  // `newest` is the newest restorable checkpoint in the job directory.
  Coordinator(CoordinatorConfig config, v1::Membership membership, std::optional<Manifest> newest,
              TimePoint now);

  // A higher revision of the membership; an equal or lower one changes nothing.
  void setMembership(const v1::Membership& membership, TimePoint now);
  // A member's word; `ticket` names the call that waits for the answer.
  void onReport(const v1::MemberReport& report, std::uint64_t ticket, TimePoint now);
  // A worker's question (see TakeRequest); `call` names the call that waits for the answer.
  void onTake(const v1::TakeRequest& request, std::uint64_t call, TimePoint now);
  // Result of a CommitAction.
  void onCommitted(const Manifest& manifest, const Status& status, TimePoint now);
  // Result of a FinishAction; a failure is said and otherwise ignored.
  void onFinishRecorded(const Status& status, TimePoint now);
  // The last checkpoint may take `within` (nullopt: stop_limit) from now on. Of several requests
  // the earliest end counts.
  void requestStop(TimePoint now, std::optional<Duration> within = std::nullopt);
  void onTick(TimePoint now);
  std::vector<CoordinatorAction> takeActions();

  v1::JobProgress progress(TimePoint now) const;
  // Who is present, by task: of a pod with several processes the first one tells.
  std::vector<v1::HeardTask> heard(TimePoint now) const;
  // Sets what is of checkpoints.
  void measure(v1::Measurements& measured) const;
  v1::Phase phase() const { return epochs_.phase(); }
  // Over, and every member has taken note (or the time for that has passed).
  bool finished(TimePoint now) const;
  std::string waitingFor(TimePoint now) const;
  const std::string& failure() const { return failure_; }
  // What the workers train on; all agree. Empty before the first has joined.
  v1::DataFingerprint data() const { return membership_.data(); }

 private:
  void accept(const MemberKey& key, const v1::MemberReport& report, TimePoint now);
  void addSquares(const MemberKey& key, const v1::MemberReport& report, TimePoint now);
  void followFailure(const MemberKey& key, const v1::MemberReport& report, TimePoint now);
  v1::View view() const;
  void replyLeft(std::uint64_t ticket, std::int64_t revision);
  void dismissUnwanted();
  void evaluate(TimePoint now);
  void answerDue(TimePoint now);

  // From one epoch to the next (epoch_change.cc).
  void endEpoch(const std::string& why, TimePoint now, bool planned = false);
  void trySealed(TimePoint now);
  bool knowsHolders(TimePoint now);
  void adoptBegun();
  void startEpoch(TimePoint now);
  void startTickets(bool kept, v1::EpochInfo& epoch);
  void tryPrepared(TimePoint now);
  bool changeDue(TimePoint now) const;
  bool followChange(TimePoint now);
  std::string changesAt(std::int64_t version) const;

  // The way to the end (job_end.cc).
  void followCheckpoints(TimePoint now);
  void followStop(TimePoint now);
  void tryStopped(TimePoint now);
  void tryDone(TimePoint now);
  // `reason`: as of JobProgress.
  void fail(const std::string& why, TimePoint now, std::string_view reason = "");

  const CoordinatorConfig config_;
  Outbox out_;
  Membership membership_;
  Epochs epochs_;
  JobSteps steps_;
  Progress progress_;
  Evaluations evaluations_;
  GradientNorm norm_;
  Tickets tickets_;
  Checkpoints checkpoints_;
  Rest rest_;
  StopRequest stop_;
  GroupFailures group_failures_;
  bool finishing_ = false;  // the end is being recorded
  std::string failure_;
  std::string_view failure_reason_;  // one of the names of JobProgress
  std::string waiting_;
};

}  // namespace trainyard::runtime
