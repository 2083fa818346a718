// One worker's side of the parameter server as a state machine: which chunks to send where, what to
// do with answers, when a step is complete, what to do next. No sockets, no clock, no tensors: the
// rim (or a simulation) carries out the sends and stores the payloads.
//
//   waiting --view ACTIVE--> pulling version v --all stored--> ready (turn: evaluate | train)
//   ready --gradients--> stepping (chunks sent, answers stored) --all stored--> version v + 1,
//   ready any --view of a higher epoch--> waiting; the kept gradients of an interrupted step are
//   sent again when the new epoch keeps the servers' state and starts with that step.
//
// In a step that has no samples for this rank there is no turn: the machine asks the servers for
// the version that the step leads to, and stands by (kStepping without a step of the trainer).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "runtime/data/step_plan.h"
#include "runtime/train/turn.h"
#include "trainyard/v1/coordinator.pb.h"
#include "trainyard/v1/parameter_server.pb.h"

namespace trainyard::runtime::ps {

struct WorkerConfig {
  std::string job_uid;
  std::uint32_t index = 0;
  v1::Incarnation self;
  bool evaluates = true;            // there is data to evaluate on
  std::int64_t evaluate_every = 0;  // 0: only after the last step
  std::vector<int> ps_of_chunk;     // by chunk id
  std::size_t window = 16;          // requests to one server that it has not yet received
  Duration retry_delay = std::chrono::milliseconds(50);
};

// One request to send. `attempt` tells answers of the same chunk apart.
struct Send {
  std::uint32_t chunk = 0;
  int ps = 0;
  std::uint64_t attempt = 0;
  bool with_payload = false;
  v1::ChunkRequestHeader header;
};

// Not thread-safe: the owner locks.
class WorkerMachine {
 public:
  explicit WorkerMachine(WorkerConfig config);

  void onView(const v1::View& view);
  // Adds what the worker knows to a report.
  void fillReport(v1::MemberReport& report) const;
  // True once per change that the coordinator should hear of at once.
  bool takeUrgent();

  // Requests to send now.
  std::vector<Send> takeSends(TimePoint now);
  // When to call takeSends again although nothing happens (a delayed repeat).
  std::optional<TimePoint> wakeAt() const;
  // The server has received the request: its place in the window is free.
  void onReceived(std::uint32_t chunk, std::uint64_t attempt);
  // The answer. True: store the payload as version header.version of the chunk, then call onStored.
  // `transport` is the failure of the call itself.
  bool onReply(std::uint32_t chunk, std::uint64_t attempt, const Status& transport,
               const v1::ChunkReplyHeader& header, TimePoint now);
  void onStored(std::uint32_t chunk, std::uint64_t attempt);

  // The trainer's side. turn(): what to do now, or nothing yet, or why it is over.
  StatusOr<std::optional<Turn>> turn();
  void gradientReady(std::uint32_t chunk);
  // After the pass: samples and loss of this rank; releases the last chunk, which carries the loss.
  void lossReady(double loss_sum);
  enum class StepState { kNone, kPending, kComplete, kAbandoned };
  StepState stepState() const { return step_state_; }
  // After kComplete or kAbandoned: the trainer has taken note; the mean loss of the step.
  double endStep();
  // With clipping: the norm of that step's mean gradient, before it was clipped.
  std::optional<double> gradientNorm() const { return gradient_norm_; }
  void evaluated(std::int64_t hits, std::int64_t samples, double loss_sum);
  void abort(std::int64_t step, std::string variable, std::string reason);

  std::int64_t version() const { return version_; }
  std::int64_t epoch() const { return epoch_.epoch(); }
  // The turn that was handed out last is void.
  bool interrupted() const;
  // The job is over for this worker (done, stopped or failed).
  bool over() const;
  const std::string& lastProblem() const { return last_problem_; }

 private:
  enum class ChunkPhase {
    kIdle,     // waits for its gradient
    kQueued,   // to be sent (not before `not_before`)
    kFlying,   // sent, not yet known to have been received
    kParked,   // received by the server, answer outstanding
    kStoring,  // payload is being copied
    kDone,
  };
  struct ChunkTask {
    ChunkPhase phase = ChunkPhase::kIdle;
    bool gradient = false;  // of step_
    bool again = false;     // queue it after the copy in progress
    std::uint64_t attempt = 0;
    TimePoint not_before{};
  };
  enum class Activity { kWaiting, kPulling, kReady, kStepping };

  void adopt(const v1::View& view);
  void startPull(std::int64_t version);
  void resumeStep();
  void queue(ChunkTask& task, TimePoint not_before);
  void queueIfReady(std::uint32_t chunk);
  void chunkDone();
  bool active() const;
  bool transferring() const;
  bool evaluationDue() const;
  bool standsBy() const;
  bool takesPart() const;
  void startStep();

  const WorkerConfig config_;
  v1::View view_;
  bool has_view_ = false;
  v1::EpochInfo epoch_;      // the one adopted; number 0: none
  StepPlan plan_;            // of epoch_
  std::int64_t sealed_ = 0;  // highest epoch seen
  int rank_ = -1;
  std::vector<v1::Incarnation> servers_;  // by ps index

  Activity activity_ = Activity::kWaiting;
  std::int64_t version_ = -1;                // complete weights held
  std::int64_t step_ = -1;                   // kStepping: gradients are of this step
  StepPlan::Share share_;                    // of step_; without samples: stands by
  StepState step_state_ = StepState::kNone;  // of the trainer, from turn(kTrain) to endStep()
  bool loss_ready_ = false;
  // The servers have completed the step under the former epoch: what is pulled is its outcome.
  bool pulls_outcome_ = false;
  double own_loss_sum_ = 0;
  std::vector<ChunkTask> chunks_;
  std::size_t done_ = 0;
  std::vector<std::size_t> flying_;  // by ps
  // By ps: it holds more chunks than fit the window, so a place must be free before the answer. For
  // the others a receipt would only cost a message.
  std::vector<bool> receipts_;
  std::uint64_t next_attempt_ = 1;

  double step_loss_ = 0;
  std::optional<double> gradient_norm_;
  std::int64_t loss_step_ = -1;
  std::int64_t turn_epoch_ = 0;          // of the turn handed out last
  std::int64_t evaluated_version_ = -1;  // own slice, in evaluated_epoch_
  std::int64_t evaluated_epoch_ = 0;
  std::deque<v1::EvaluationPart> parts_;
  std::optional<v1::Abort> abort_;
  bool urgent_ = true;
  std::string last_problem_;
};

}  // namespace trainyard::runtime::ps
