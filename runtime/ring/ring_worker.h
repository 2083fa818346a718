// One worker of strategy AllReduce as a state machine: which epoch to form a group for, what to do
// next, when a step counts. No sockets, no tensors, no clock.
//
//   waiting --takePrepare(), state received, onPrepared()--> ready --turn()--> stepping
//      ^                                                       ^                  |
//      |__ a new epoch, or the group failed __ from anywhere   |___ applying <____| sums are there
//
// The state is whole at any moment but while it is received and while a step is applied: a step is
// applied when all of its sums are there, or not at all. While it is being applied the worker does
// not vouch for the seal of a new epoch, which would then start from one step too early.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>

#include "base/core/status.h"
#include "runtime/coordinator/member_core.h"
#include "runtime/train/turn.h"
#include "trainyard/v1/coordinator.pb.h"

namespace trainyard::runtime::ring {

struct RingWorkerConfig {
  std::uint32_t index = 0;
  bool evaluates = true;            // there is data to evaluate on
  std::int64_t evaluate_every = 0;  // 0: only after the last step
  std::uint16_t port = 0;           // where the other ranks connect
  std::uint64_t parameter_bytes = 0;
  // A step that has no samples for this rank is a turn all the same, with samples = 0: whoever
  // computes makes the next version of the weights himself.
  bool tells_standing = false;
};

// Not thread-safe: the owner locks.
class RingWorker : public MemberCore {
 public:
  explicit RingWorker(RingWorkerConfig config) : MemberCore(config.index), config_(config) {}

  void onView(const v1::View& view);
  void fillReport(v1::MemberReport& report) const;

  // An epoch to form a group for, once. The owner then loads (its source rank) or receives what it
  // starts from, and says onPrepared() or onFailure().
  std::optional<v1::EpochInfo> takePrepare();
  // The state that was handed out by takePrepare() is about to be written over. False: it is what
  // the epoch starts from already, and stays.
  bool beginReceive(const v1::EpochInfo& epoch);
  void onPrepared(const v1::EpochInfo& epoch);
  // What the epoch starts from cannot be had (e.g. a damaged checkpoint): ends the job.
  void onProblem(const std::string& problem);
  // The group of the epoch is of no more use: all meet again.
  void onFailure(std::int64_t epoch, const std::string& message);
  // Nobody needs any more what the group of `epoch` is at.
  bool cancelled(std::int64_t epoch) const;

  // The trainer's side: what to do now, or nothing yet, or why it is over. After kTrain, and when
  // standing(), a step is under way until applied() or leaveStep().
  StatusOr<std::optional<Turn>> turn();
  // The step has no samples for this rank, which takes part in it all the same.
  bool standing() const { return activity_ == Activity::kStepping && standing_; }
  bool stepping() const { return activity_ == Activity::kStepping; }
  std::int64_t step() const { return step_; }
  std::int64_t stepSamples() const { return plan_.samplesOf(step_); }
  // All sums of the step are there. False: they come too late, a new epoch has been announced.
  bool beginApply();
  void applied(double loss);
  void leaveStep();
  bool aborted() const { return abort_.has_value(); }

  // The version that is held is to be copied for a checkpoint, once. Not while a step is applied.
  bool takeSnapshot();
  // A copy's file is on disk (or has failed: file.error).
  void onWritten(const v1::ShardFile& file);

 private:
  enum class Activity { kWaiting, kReady, kStepping, kApplying };

  void arm(std::int64_t version);
  bool evaluationDue() const;

  const RingWorkerConfig config_;
  Activity activity_ = Activity::kWaiting;
  std::optional<v1::EpochInfo> to_prepare_;
  std::int64_t preparing_ = 0;  // epoch handed out
  std::int64_t prepared_ = 0;
  bool standing_ = false;
  std::int64_t step_ = -1;
  double loss_ = 0;
  std::int64_t loss_step_ = -1;
  std::set<std::int64_t> armed_;  // versions to copy, of this epoch
  std::int64_t missed_ = -1;
  std::int64_t copied_ = -1;           // newest, in this epoch
  std::deque<v1::ShardFile> written_;  // the newest few
  std::string problem_;
  v1::RingFailure failure_;
};

}  // namespace trainyard::runtime::ring
