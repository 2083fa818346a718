// The worker's state machine in mode Sync.
//
//   waiting --view ACTIVE--> pulling version v --all stored--> ready (turn: evaluate | train)
//   ready --gradients--> stepping (chunks sent, answers stored) --all stored--> version v + 1,
//   ready any --view of a higher epoch--> waiting; the kept gradients of an interrupted step are
//   sent again when the new epoch keeps the servers' state and starts with that step.
//
// While a view says hold, no other step begins. A worker that is no member of an epoch waits for
// one that it is a member of; once it is told that it has left, its last turn is kLeft.
//
// In a step that has no samples for this rank there is no turn: the machine asks the servers for
// the version that the step leads to, and stands by.
//
// Parts of the job's tables go the way of chunks: what is pulled and answered are rows, those of
// the samples that this rank has in the step that begins at the version.
//
// With backup workers a step takes the first gradients that are complete. The worker holds all of
// its own until it has them, then asks the coordinator for a place in the step; when there is none
// left it drops them and stands by for the newest version.
#pragma once

#include "runtime/ps/worker_core.h"

namespace trainyard::runtime::ps {

class SyncWorker final : public WorkerCore {
 public:
  using WorkerCore::WorkerCore;

  void onView(const v1::View& view) override;
  void fillReport(v1::MemberReport& report) const override;
  std::vector<Send> takeSends(TimePoint now) override;
  StatusOr<std::optional<Send>> readRows(std::size_t part) override;
  void onRowsGone() override;
  void onTake(const v1::TakeRequest& request, const Status& transport, const v1::TakeReply& reply,
              TimePoint now) override;
  bool onReply(std::uint32_t chunk, std::uint64_t attempt, const Status& transport,
               const v1::ChunkReplyHeader& header, TimePoint now) override;
  void onStored(std::uint32_t chunk, std::uint64_t attempt) override;
  void onCut(std::uint32_t chunk, std::uint64_t attempt, const Status& transport,
             TimePoint now) override;

  StatusOr<std::optional<Turn>> turn() override;
  void gradientReady(std::uint32_t chunk) override;
  void lossReady(const BatchLoss& loss) override;
  StepEnd endStep() override;

 private:
  enum class Activity { kWaiting, kPulling, kReady, kStepping };

  void adopt(const v1::View& view);
  void startPull(std::int64_t version);
  void standBy(std::int64_t step);
  void resumeStep();
  void chunkDone();
  void startStep();
  void leaveStep();
  void catchUp();
  void askForPlace(bool with_gradient);
  bool holdsBack(std::uint32_t chunk) const;
  bool carriesLoss(std::uint32_t chunk) const { return chunk + 1 == chunks(); }
  bool transferring() const;
  bool evaluationDue() const;
  bool takesPart() const;
  bool chiefScores() const;
  bool withBackups() const { return plan_.backup_workers > 0; }

  Activity activity_ = Activity::kWaiting;
  std::int64_t step_ = -1;  // kStepping: gradients are of this step
  bool standing_ = false;   // kStepping without a gradient of one's own
  StepPlan::Share share_;   // of step_; without samples: stands by
  bool too_late_ = false;   // the step that was abandoned last
  int place_ = -1;          // among the gradients of step_, with backup workers; -1: none yet
  // The servers have completed the step under the former epoch: what is pulled is its outcome.
  bool pulls_outcome_ = false;
  std::uint64_t rests_since_ = 0;  // view that it asked under for the version to rest at
  std::optional<double> gradient_norm_;
};

}  // namespace trainyard::runtime::ps
