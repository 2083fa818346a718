// What a worker's state machine does alike in every update mode: follows views and epochs, asks the
// coordinator, reports evaluations and failures.
#pragma once

#include <deque>

#include "runtime/data/step_plan.h"
#include "runtime/ps/chunk_transfer.h"
#include "runtime/ps/worker_machine.h"

namespace trainyard::runtime::ps {

class WorkerCore : public WorkerMachine {
 public:
  explicit WorkerCore(WorkerConfig config);

  bool takeUrgent() override;
  std::optional<v1::TakeRequest> takeAsk(TimePoint now) override;
  std::optional<TimePoint> wakeAt() const override;
  void onReceived(std::uint32_t chunk, std::uint64_t attempt) override;
  void evaluated(std::int64_t hits, std::int64_t samples, double loss_sum) override;
  void abort(std::int64_t step, std::string variable, std::string reason) override;
  std::int64_t version() const override { return version_; }
  std::int64_t epoch() const override { return epoch_.epoch(); }
  bool interrupted() const override;
  bool over() const override;
  const std::string& lastProblem() const override { return last_problem_; }

 protected:
  // False: an older view, or the same again.
  bool takeView(const v1::View& view);
  // Makes the view's epoch this worker's; nothing that was sent before will be answered.
  void enterEpoch(const v1::View& view);
  bool active() const;
  bool stopping() const { return view_.phase() == v1::PHASE_STOPPING; }
  // No other step is begun: the job stops, or its workers are about to change. After the last step
  // there is nothing to rest from.
  bool resting() const { return stopping() || (view_.hold() && version_ < plan_.steps); }
  // What a turn says when the job is over or refuses this worker; nothing while it goes on.
  StatusOr<std::optional<Turn>> endTurn() const;
  // One request per chunk that is to be sent now, with what is the same in every mode.
  std::vector<Send> sendsOf(TimePoint now);
  // Sends the chunk again when its answer was of no use.
  void sendAgain(std::uint32_t chunk, std::int64_t step, const Status& transport,
                 const v1::ChunkReplyHeader& header, TimePoint now);
  // A report's parts that are the same in every mode.
  void fillCommon(v1::MemberReport& report) const;

  // The question to the coordinator that is open: asked until answered, one at a time.
  void ask(v1::TakeRequest request);
  void dropAsk() { ask_.reset(); }
  bool asking() const { return ask_.has_value(); }
  // True: `reply` is the answer to the open question, which is then closed. False: it is not, or it
  // is asked again.
  bool closeAsk(const v1::TakeRequest& request, const Status& transport, const v1::TakeReply& reply,
                TimePoint now);

  const WorkerConfig config_;
  ChunkTransfer transfer_;
  v1::View view_;
  bool has_view_ = false;
  v1::EpochInfo epoch_;      // the one adopted; number 0: none
  StepPlan plan_;            // of epoch_
  std::int64_t sealed_ = 0;  // highest epoch seen
  int rank_ = -1;
  std::vector<v1::Incarnation> servers_;  // by ps index
  std::int64_t version_ = -1;             // complete weights held
  std::int64_t turn_epoch_ = 0;           // of the turn handed out last
  std::int64_t evaluated_version_ = -1;   // own slice, in evaluated_epoch_
  std::int64_t evaluated_epoch_ = 0;
  bool urgent_ = true;
  std::string last_problem_;
  std::optional<v1::Abort> abort_;

 private:
  std::deque<v1::EvaluationPart> parts_;
  std::optional<v1::TakeRequest> ask_;
  bool ask_sent_ = false;
  TimePoint ask_not_before_{};
  std::int64_t asked_ = 0;  // under this epoch
};

}  // namespace trainyard::runtime::ps
