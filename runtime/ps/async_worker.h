// The worker's state machine in modes Async and BoundedDelay: no worker waits for another's
// gradient.
//
//   waiting --view ACTIVE--> pulling --all stored--> idle --lease of samples--> turn: train
//   train --first gradient: ask for a ticket--> ticket t --chunks leave as they get ready, each
//   answered with the chunk as it then is; all stored--> push t is finished; idle
//
// Parts of the job's tables are pulled for the samples of a lease before its turn; a push asks for
// those of the next lease, which comes with the ticket, so that there is one way less.
//
// The ticket is the push's number among all workers' pushes. When there is no more the gradient is
// dropped. Under a new epoch that keeps the servers' state a push goes on where it was, so each
// server applies it once; computing goes on too.
#pragma once

#include "runtime/ps/worker_core.h"

namespace trainyard::runtime::ps {

class AsyncWorker final : public WorkerCore {
 public:
  using WorkerCore::WorkerCore;

  void onView(const v1::View& view) override;
  void fillReport(v1::MemberReport& report) const override;
  std::vector<Send> takeSends(TimePoint now) override;
  StatusOr<std::optional<Send>> readRows(std::size_t part) override;
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
  void evaluated(std::int64_t hits, std::int64_t samples, double loss_sum,
                 const ClickScores& clicks = {}) override;

 private:
  enum class Activity { kWaiting, kPulling, kIdle, kComputing };

  void adopt();
  void startPull(bool weights);
  void pulled();
  void abandon();
  void askFor(bool ticket);
  void pushed();
  void queueReady();
  bool carriesLoss(std::uint32_t chunk) const { return chunk + 1 == chunks(); }
  StepPlan::Share leased() const;
  void wantRows();
  bool lacksRows() const { return hasParts() && held_rows_ != leased(); }
  bool lastVersionDue() const;
  bool evaluationDue() const;
  std::int64_t versionAfter(std::int64_t pushes) const;

  Activity activity_ = Activity::kWaiting;
  std::optional<v1::Lease> lease_;      // for the gradient to compute next
  v1::Lease own_;                       // of the gradient in hand
  std::optional<std::int64_t> ticket_;  // of the gradient in hand
  std::int64_t finished_ = 0;           // pushes under this epoch, without the one brought into it
  bool carried_ = false;                // ticket_ is of an epoch before
  std::int64_t push_ = 0;               // of this process, the newest
  bool evaluating_ = false;
  bool no_more_ = false;  // under this epoch no push is taken any more
  bool stale_ = false;    // others have pushed since the last pull; pull before computing
  std::int64_t pulled_version_ = -1;
  // Samples whose rows are here, and are asked for.
  StepPlan::Share held_rows_;
  StepPlan::Share wanted_rows_;
  std::int64_t rows_wish_ = 0;
};

}  // namespace trainyard::runtime::ps
