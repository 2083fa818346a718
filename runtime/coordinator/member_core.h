// What every worker's state machine does with the coordinator's views, whoever puts its gradients
// together with those of others: follows views and epochs, knows when to rest and when all is over,
// reports evaluations and failures.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "base/core/status.h"
#include "runtime/data/click_scores.h"
#include "runtime/data/step_plan.h"
#include "runtime/train/turn.h"
#include "trainyard/v1/coordinator.pb.h"

namespace trainyard::runtime {

// Of a job in phase FAILED: OUT_OF_RANGE where a table is full, else FAILED_PRECONDITION. The
// program ends with the code that says so (base/core/exit_code.h).
Status failureOf(const v1::View& view);

// Not thread-safe: the owner locks.
class MemberCore {
 public:
  // `index` of the worker.
  explicit MemberCore(std::uint32_t index) : index_(index) {}

  // True once per change that the coordinator should hear of at once.
  bool takeUrgent();
  // Of the turn that was handed out last, unless it is void by now.
  void evaluated(std::int64_t hits, std::int64_t samples, double loss_sum,
                 const ClickScores& clicks = {});
  void abort(std::int64_t step, std::string variable, std::string reason);
  std::int64_t version() const { return version_; }
  std::int64_t epoch() const { return epoch_.epoch(); }
  // The turn that was handed out last is void.
  bool interrupted() const;
  // The job is over for this worker (done, stopped or failed, or it has left).
  bool over() const;

 protected:
  ~MemberCore() = default;

  // False: an older view, or the same again.
  bool takeView(const v1::View& view);
  // Makes the epoch this worker's; rank_ is -1 when it is no member.
  void enterEpoch(const v1::EpochInfo& epoch);
  bool active() const;
  bool stopping() const { return view_.phase() == v1::PHASE_STOPPING; }
  // No other step is begun: the job stops, or its workers are about to change. After the last step
  // there is nothing to rest from.
  bool resting() const { return stopping() || (view_.hold() && version_ < plan_.steps); }
  // Of the weights held: by all, as the coordinator says, or this worker's slice.
  bool evaluationDone() const;
  // What a turn says when the job is over or refuses this worker; nothing while it goes on.
  StatusOr<std::optional<Turn>> endTurn() const;
  // A report's parts that are the same for every worker.
  void fillCommon(v1::MemberReport& report) const;

  v1::View view_;
  bool has_view_ = false;
  v1::EpochInfo epoch_;      // the one adopted; number 0: none
  StepPlan plan_;            // of epoch_
  std::int64_t sealed_ = 0;  // highest epoch seen
  int rank_ = -1;
  std::int64_t version_ = -1;            // complete weights held
  std::int64_t turn_epoch_ = 0;          // of the turn handed out last
  std::int64_t evaluated_version_ = -1;  // own slice, in evaluated_epoch_
  std::int64_t evaluated_epoch_ = 0;
  bool urgent_ = true;
  std::optional<v1::Abort> abort_;

 private:
  const std::uint32_t index_;
  std::deque<v1::EvaluationPart> parts_;
};

}  // namespace trainyard::runtime
