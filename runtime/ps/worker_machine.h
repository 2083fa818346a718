// One worker's side of the parameter server as a state machine: which chunks to send where, what to
// do with answers, when a step is complete, what to do next. No sockets, no clock, no tensors: the
// rim (or a simulation) carries out the sends and stores the payloads. Implementations:
// sync_worker.h and async_worker.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "runtime/data/click_scores.h"
#include "runtime/data/step_plan.h"
#include "runtime/train/gradient.h"
#include "runtime/train/turn.h"
#include "trainyard/v1/coordinator.pb.h"
#include "trainyard/v1/parameter_server.pb.h"

namespace trainyard::runtime::ps {

struct WorkerConfig {
  std::string job_uid;
  std::uint32_t index = 0;
  v1::Incarnation self;
  bool asynchronous = false;        // modes Async and BoundedDelay
  int aggregate = 1;                // Async: pushes that make one update
  bool evaluates = true;            // there is data to evaluate on
  std::int64_t evaluate_every = 0;  // 0: only after the last step
  std::vector<int> ps_of_chunk;     // by chunk id
  // Sync: parts of the job's tables, which are to the machine chunks behind the others (RowGrid).
  std::vector<int> ps_of_part;
  std::size_t window = 16;  // requests to one server that it has not yet received
  // A request's place in the window is free with its answer instead. Workers of a step then keep
  // abreast of each other and of all servers (ChunkTransfer), so that its first chunks are
  // complete, and their new versions on the way, while its last ones are sent: a link that is slow
  // is used both ways at once. Not where a chunk's answer may wait for later chunks (clipping).
  bool window_until_answer = false;
  // Of the largest chunk: with window_until_answer the window is as many of these as fill the link
  // to a server (LinkEstimate), if those are more than `window`. 0: it does not follow the link.
  std::uint64_t chunk_bytes = 0;
  // With window_until_answer and chunk_bytes: of more than six servers each has a window of its
  // share of this, of three chunks at least, if that is less than `window`. 0: it is `window`.
  std::uint64_t abreast_bytes = 0;
  Duration retry_delay = std::chrono::milliseconds(50);
};

// One request to send. `attempt` tells answers of the same chunk apart.
struct Send {
  std::uint32_t chunk = 0;
  int ps = 0;
  std::uint64_t attempt = 0;
  bool with_payload = false;
  // Of a part of the tables: the samples whose rows the answer is to have.
  StepPlan::Share rows;
  // The same with each of the requests that go for the same rows. Asynchronous modes; in Sync their
  // version says it.
  std::int64_t rows_wish = 0;
  v1::ChunkRequestHeader header;
};

// Not thread-safe: the owner locks.
class WorkerMachine {
 public:
  virtual ~WorkerMachine() = default;

  virtual void onView(const v1::View& view) = 0;
  // Adds what the worker knows to a report.
  virtual void fillReport(v1::MemberReport& report) const = 0;
  // True once per change that the coordinator should hear of at once.
  virtual bool takeUrgent() = 0;

  // Requests to send now.
  virtual std::vector<Send> takeSends(TimePoint now) = 0;
  // A request to read a part of the tables at the version of the turn, in which no gradient has
  // left yet; its chunk number and attempt are the caller's. Nothing: not now. CANCELLED: the turn
  // is void.
  virtual StatusOr<std::optional<Send>> readRows(std::size_t part) = 0;
  // Its answer says that there are later versions only.
  virtual void onRowsGone() {}
  // What to ask the coordinator for now; one question is under way at a time.
  virtual std::optional<v1::TakeRequest> takeAsk(TimePoint now) = 0;
  // The answer to the newest question; others are ignored.
  virtual void onTake(const v1::TakeRequest& request, const Status& transport,
                      const v1::TakeReply& reply, TimePoint now) = 0;
  // When to call takeSends and takeAsk again although nothing happens (a delayed repeat).
  virtual std::optional<TimePoint> wakeAt() const = 0;
  // What has been measured of a lane to a server, see LinkEstimate::observe().
  virtual void onPace(int ps, int lane, double bytes_per_second, Duration round_trip) = 0;
  // The server has received the request: its place in the window is free.
  virtual void onReceived(std::uint32_t chunk, std::uint64_t attempt) = 0;
  // The answer. True: store the payload as version header.version of the chunk, then call onStored.
  // `transport` is the failure of the call itself.
  virtual bool onReply(std::uint32_t chunk, std::uint64_t attempt, const Status& transport,
                       const v1::ChunkReplyHeader& header, TimePoint now) = 0;
  virtual void onStored(std::uint32_t chunk, std::uint64_t attempt) = 0;
  // In place of onStored(): only a part of the payload has arrived, and there will be no more of
  // it. What is stored of the chunk is no version.
  virtual void onCut(std::uint32_t chunk, std::uint64_t attempt, const Status& transport,
                     TimePoint now) = 0;

  // The trainer's side. turn(): what to do now, or nothing yet, or why it is over.
  virtual StatusOr<std::optional<Turn>> turn() = 0;
  virtual void gradientReady(std::uint32_t chunk) = 0;
  // After the pass: samples and loss of this rank; releases the last chunk, which carries the loss.
  virtual void lossReady(const BatchLoss& loss) = 0;
  enum class StepState { kNone, kPending, kComplete, kAbandoned };
  virtual StepState stepState() const = 0;
  struct StepEnd {
    double loss = 0;        // mean, of all workers (sync) or of this one's samples (async)
    std::int64_t step = 0;  // the step taken: async: the number of the push
    std::optional<double> accuracy = {};  // of the same samples, see StepOutcome
    // With clipping: the norm of that step's mean gradient, before it was clipped.
    std::optional<double> gradient_norm = {};
    bool too_late = false;  // abandoned because its step was complete without this gradient
  };
  // After kComplete or kAbandoned: the trainer has taken note.
  virtual StepEnd endStep() = 0;
  virtual void evaluated(std::int64_t hits, std::int64_t samples, double loss_sum,
                         const ClickScores& clicks = {}) = 0;
  virtual void abort(std::int64_t step, std::string variable, std::string reason) = 0;

  virtual std::int64_t version() const = 0;
  virtual std::int64_t epoch() const = 0;
  // The turn that was handed out last is void.
  virtual bool interrupted() const = 0;
  // The job is over for this worker (done, stopped or failed, or it has left).
  virtual bool over() const = 0;
  virtual const std::string& lastProblem() const = 0;
};

std::unique_ptr<WorkerMachine> makeWorkerMachine(WorkerConfig config);

}  // namespace trainyard::runtime::ps
