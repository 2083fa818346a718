// One worker's training as whoever computes drives it: it asks what to do next, hands over what it
// has computed, and hears whether the step counts. Knows no model and no data, but how many
// variables and samples there are; knows nothing of sockets, files or parameter servers.
//
//   next() -> kTrain      read samples() -> computing() -> push() each variable -> finish(),
//                         or sum() -> the caller's own update -> commit()
//          -> kEvaluate   score evaluationRange() -> evaluated()
//          -> kDone, kStopped, kLeft: over
//
// What a turn was asked for and not done, as after an error of the model's own, is forgotten by the
// next next().
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "base/metrics/bucket_counts.h"
#include "base/metrics/catalogue.h"
#include "runtime/data/sample_stream.h"
#include "runtime/train/step_commit.h"
#include "runtime/train/step_record.h"
#include "runtime/train/synchronizer.h"

namespace trainyard::runtime {

// Running totals, for reports.
struct TrainTotals {
  const char* phase = "Joining";
  std::int64_t step = 0;
  std::uint64_t examples = 0;
  std::uint64_t steps = 0;
  std::uint64_t too_late = 0;  // gradients that were computed, but not taken any more
  double last_step_seconds = 0;
  double data_seconds = 0;
  double compute_seconds = 0;
  double wait_seconds = 0;
  double evaluate_seconds = 0;
  // Updates of others between the weights of a gradient and its own update.
  BucketCounts staleness{metric("trainyard_worker_staleness_steps").buckets};
  BucketCounts step_times{metric("trainyard_worker_step_duration_seconds").buckets};
};

struct SessionOptions {
  std::vector<std::string> variables;  // names of those that are trained, as Gradient numbers them
  std::uint64_t seed = 0;              // of the order of samples
  std::int64_t samples = 0;            // to train on, >= 1
  std::int64_t evaluation_samples = 0;
  SampleOrder order = {};
};

// Used by one thread, but totals(), which any may call.
class TrainingSession {
 public:
  // All must outlive the session. `commit` is the synchronizer's other side, where it has one.
  TrainingSession(SessionOptions options, Synchronizer& synchronizer, TrainObserver& observer,
                  const Clock& clock, StepCommit* commit = nullptr);

  // Waits for the next thing to do. Errors: FAILED_PRECONDITION while a step is summed and not
  // committed; those of Synchronizer::next().
  StatusOr<Turn> next();

  // Of a kTrain turn, until the next one: places in the stream of samples, and which sample stands
  // at each. Random numbers of a sample (dropout) are keyed by its place, which repeats where a
  // step is taken anew.
  std::span<const std::int64_t> positions() const { return positions_; }
  std::span<const std::int64_t> samples() const { return samples_; }
  // The samples are read: what follows is computing.
  void computing();
  // For this turn; see Synchronizer.
  bool wantsGradientsOnDevice() const { return synchronizer_.wantsGradientsOnDevice(); }
  // Rows of this turn; null: the job has no tables.
  RowExchange* rowExchange() { return synchronizer_.rowExchange(); }
  // Each variable once, in any order, while the pass goes on or after it; returns at once. None in
  // a turn without samples, which those get who update the weights themselves. One that is not
  // finite ends the job, and neither it nor what comes after it leaves this worker. Errors end the
  // step for this worker: INVALID_ARGUMENT where there is no such variable, or it was handed over
  // before.
  Status push(Gradient gradient);
  // After all pushes: waits until the step is complete and the next version has arrived, and tells
  // the observer. Not complete: ask next() again, which may give the same samples. Errors:
  // INVALID_ARGUMENT where a variable's gradient is missing; the observer's;
  // Synchronizer::finish()'s.
  StatusOr<StepOutcome> finish(const BatchLoss& loss);
  // Instead of finish(), for a caller with an optimizer of its own: the same in two halves, as of
  // StepCommit. Nothing: the step does not count, ask next() again. Errors: FAILED_PRECONDITION
  // where servers take the steps; those of finish().
  StatusOr<std::optional<SummedStep>> sum(const BatchLoss& loss, StepCommit::Arrays means = {});
  StatusOr<StepOutcome> commit();

  // Of a kEvaluate turn: this worker's evaluation samples, [first, second).
  std::pair<std::int64_t, std::int64_t> evaluationRange() const;
  // Nobody waits for this turn's result any more: a long evaluation may be cut short.
  bool interrupted() const { return synchronizer_.interrupted(); }
  void evaluated(const BatchScore& score);

  TrainTotals totals() const;

 private:
  void beginStep();
  void beginEvaluation();
  void noteNotFinite(std::string_view variable, std::string_view reason);
  Status checkAllPushed() const;
  Status endPass(const BatchLoss& loss);
  // What a step took, and whether it was made; of one that was, tells the observer.
  StatusOr<StepOutcome> settle(const StepOutcome& outcome, TimePoint end);
  void count(const StepOutcome& outcome, TimePoint end);
  // What comes before the step's record: how long it took and what the job did meanwhile. Steps
  // that others took without this worker, and the time of its own that came too late, belong to the
  // next that is taken.
  void measure(const StepOutcome& outcome, StepRecord* record);
  // With the turn that follows it.
  Status settleGivenUp();

  const SessionOptions options_;
  Synchronizer& synchronizer_;
  StepCommit* const commit_;
  TrainObserver& observer_;
  const Clock& clock_;
  SampleStream stream_;

  Turn turn_;
  std::vector<std::int64_t> positions_;
  std::vector<std::int64_t> samples_;
  TimePoint began_;      // the turn's work
  TimePoint have_data_;  // since when it is computed
  TimePoint computed_;   // since when it waits for others
  TimePoint answered_;   // until when it did
  bool summed_ = false;  // and not committed
  double own_loss_ = 0;  // mean over this worker's samples
  std::optional<double> own_accuracy_;
  std::vector<bool> delivered_;  // by variable
  bool poisoned_ = false;        // by a failpoint: gradients count as not finite
  bool finite_ = true;

  // The end of the last step that was recorded; nothing after an evaluation or a step that was
  // given up.
  struct Recorded {
    std::int64_t epoch = 0;
    std::int64_t step = 0;
    TimePoint end;
  };
  std::optional<Recorded> recorded_;
  // The step that was given up last, until it is known whether others took it.
  std::optional<StepRecord> given_up_;
  double train_seconds_ = 0;
  mutable std::mutex mutex_;
  TrainTotals totals_;
};

}  // namespace trainyard::runtime
