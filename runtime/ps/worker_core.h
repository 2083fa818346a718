// What a worker's state machine does alike in every update mode, beside what MemberCore does: sends
// chunks to servers, asks the coordinator.
#pragma once

#include <map>

#include "runtime/coordinator/member_core.h"
#include "runtime/ps/chunk_transfer.h"
#include "runtime/ps/link_estimate.h"
#include "runtime/ps/worker_machine.h"

namespace trainyard::runtime::ps {

class WorkerCore : public WorkerMachine, protected MemberCore {
 public:
  explicit WorkerCore(WorkerConfig config);

  bool takeUrgent() override { return MemberCore::takeUrgent(); }
  std::optional<v1::TakeRequest> takeAsk(TimePoint now) override;
  std::optional<TimePoint> wakeAt() const override;
  void onPace(int ps, int lane, double bytes_per_second, Duration round_trip) override;
  void onReceived(std::uint32_t chunk, std::uint64_t attempt) override;
  void evaluated(std::int64_t hits, std::int64_t samples, double loss_sum,
                 const ClickScores& clicks = {}) override {
    MemberCore::evaluated(hits, samples, loss_sum, clicks);
  }
  void abort(std::int64_t step, std::string variable, std::string reason) override {
    MemberCore::abort(step, std::move(variable), std::move(reason));
  }
  std::int64_t version() const override { return version_; }
  std::int64_t epoch() const override { return epoch_.epoch(); }
  bool interrupted() const override { return MemberCore::interrupted(); }
  bool over() const override { return MemberCore::over(); }
  StepState stepState() const override { return step_state_; }
  const std::string& lastProblem() const override { return last_problem_; }

 protected:
  // MemberCore's, and what is known of the newest step.
  void fillCommon(v1::MemberReport& report) const;
  // False: an older view, or the same again.
  bool takeView(const v1::View& view);
  // Makes the view's epoch this worker's; nothing that was sent before will be answered.
  void enterEpoch(const v1::View& view);
  // One request per chunk that is to be sent now, with what is the same in every mode.
  std::vector<Send> sendsOf(TimePoint now);
  // What a request for the chunk says in every mode.
  Send requestFor(std::uint32_t chunk) const;
  std::uint32_t chunks() const { return static_cast<std::uint32_t>(config_.ps_of_chunk.size()); }
  bool isPart(std::uint32_t chunk) const { return chunk >= chunks(); }
  bool hasParts() const { return !config_.ps_of_part.empty(); }
  // A request to read the part, outside of steps; nothing: its server is no member.
  std::optional<Send> readingOf(std::size_t part) const;
  // Sends the chunk again when its answer was of no use.
  void sendAgain(std::uint32_t chunk, std::int64_t step, const Status& transport,
                 const v1::ChunkReplyHeader& header, TimePoint now);
  // The question to the coordinator that is open: asked until answered, one at a time.
  void ask(v1::TakeRequest request);
  // What the last chunk's push says of this rank's samples.
  void writeLoss(v1::ChunkRequestHeader& header) const;
  // Of a step of which nobody says what all workers brought: that of this rank's `samples`.
  void takeOwnLoss(int samples);
  void dropAsk() { ask_.reset(); }
  bool asking() const { return ask_.has_value(); }
  // True: `reply` is the answer to the open question, which is then closed. False: it is not, or it
  // is asked again.
  bool closeAsk(const v1::TakeRequest& request, const Status& transport, const v1::TakeReply& reply,
                TimePoint now);

  const WorkerConfig config_;
  ChunkTransfer transfer_;
  std::vector<v1::Incarnation> servers_;     // by ps index
  StepState step_state_ = StepState::kNone;  // of the trainer, from turn(kTrain) to endStep()
  bool loss_ready_ = false;
  BatchLoss own_loss_;    // of this rank's samples of the step in hand
  double step_loss_ = 0;  // of loss_step_
  std::optional<double> step_accuracy_;
  std::int64_t loss_step_ = -1;  // the newest one whose loss is known
  std::string last_problem_;

 private:
  // To each server of this epoch, where its link needs no larger one.
  std::size_t window() const;

  std::map<int, LinkEstimate> links_;  // by server of this epoch
  std::optional<v1::TakeRequest> ask_;
  bool ask_sent_ = false;
  TimePoint ask_not_before_{};
  std::int64_t asked_ = 0;  // under this epoch
};

}  // namespace trainyard::runtime::ps
