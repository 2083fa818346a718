#include "runtime/compute/trainer.h"

#include <deque>
#include <limits>

#include "gmock/gmock.h"

namespace trainyard::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Two variables; every pass takes two seconds of the fake clock.
class TinyModel : public Model {
 public:
  explicit TinyModel(FakeClock& clock) : clock_(clock) {
    for (const char* name : {"first", "second"}) {
      Variable v;
      v.name = name;
      v.shape = {2};
      variables_.push_back(v);
    }
  }
  const std::vector<Variable>& variables() const override { return variables_; }
  std::span<float> weights(int variable) override {
    return weights_[static_cast<std::size_t>(variable)];
  }
  StatusOr<BatchLoss> forwardBackward(const Batch& batch, const GradientSink& sink) override {
    keys = batch.keys;
    images = batch.images;
    clock_.advance(std::chrono::seconds(2));
    // What is on a device has no address here.
    constexpr const float* kElsewhere = nullptr;
    for (int v = 1; v >= 0; --v) {
      const std::span<const float> values(gradients[static_cast<std::size_t>(v)]);
      sink({v, on_device ? std::span(kElsewhere, 2) : values, nullptr, {}, on_device});
    }
    if (!failure.ok()) return failure;
    return BatchLoss{loss, batch.size()};
  }
  StatusOr<BatchScore> evaluate(const Batch& batch) override {
    clock_.advance(std::chrono::seconds(3));
    evaluated.push_back(batch.keys);
    return BatchScore{1, batch.size(), 0.5 * batch.size()};
  }

  bool deliverOnDevice(bool wanted) override {
    on_device = wanted;
    return true;
  }

  std::array<std::array<float, 2>, 2> gradients{{{1, 2}, {3, 4}}};
  bool on_device = false;
  double loss = 6;
  Status failure = absl::OkStatus();
  std::vector<std::int64_t> keys;
  std::vector<float> images;
  std::vector<std::vector<std::int64_t>> evaluated;

 private:
  FakeClock& clock_;
  std::vector<Variable> variables_;
  std::array<std::array<float, 2>, 2> weights_{};
};

// Hands out the turns it was given and writes down what it hears; each wait takes a second.
class ScriptedSynchronizer : public Synchronizer {
 public:
  explicit ScriptedSynchronizer(FakeClock& clock) : clock_(clock) {}
  StatusOr<Turn> next() override {
    clock_.advance(std::chrono::seconds(1));
    if (turns.empty()) return absl::FailedPreconditionError("the job failed");
    const Turn turn = turns.front();
    turns.pop_front();
    step = turn.step;
    return turn;
  }
  bool wantsGradientsOnDevice() const override { return step == on_device_in; }
  bool push(Gradient gradient) override {
    pushed.push_back(gradient.variable);
    pushed_on_device.push_back(gradient.on_device);
    return true;
  }
  StatusOr<StepOutcome> finish(const BatchLoss& loss) override {
    clock_.advance(std::chrono::seconds(1));
    finished.push_back(loss.loss_sum);
    return StepOutcome{complete, step, 0.25, std::nullopt};
  }
  void evaluated(const BatchScore& score) override { scores.push_back(score); }
  void abort(std::int64_t step, std::string_view variable, std::string_view reason) override {
    aborts.push_back(std::to_string(step) + "|" + std::string(variable) + "|" +
                     std::string(reason));
  }
  bool interrupted() const override { return looks++ >= interrupt_after; }

  std::deque<Turn> turns;
  bool complete = true;
  std::int64_t step = -1;  // of the newest turn
  int interrupt_after = 1000;
  mutable int looks = 0;
  std::vector<int> pushed;
  std::vector<bool> pushed_on_device;
  std::int64_t on_device_in = -1;  // step
  std::vector<double> finished;
  std::vector<BatchScore> scores;
  std::vector<std::string> aborts;

 private:
  FakeClock& clock_;
};

class Records : public TrainObserver {
 public:
  Status onStep(const StepRecord& record) override {
    records.push_back(record);
    return answer;
  }
  std::vector<StepRecord> records;
  Status answer = absl::OkStatus();
};

DataSplits data() {
  v1::DataSpec spec;
  spec.set_format("synthetic");
  for (const int d : {2, 2, 1}) spec.add_shape(d);
  spec.set_classes(2);
  spec.set_samples(100);
  spec.set_eval_samples(1000);
  auto opened = openData(spec);
  EXPECT_TRUE(opened.ok()) << opened.status();
  return std::move(*opened);
}

Turn train(std::int64_t step) {
  Turn turn;
  turn.step = step;
  turn.epoch = 3;
  turn.rank = 1;
  turn.ranks = 2;
  turn.first_position = step * 20 + 10;
  turn.samples = 10;
  turn.step_samples = 19;
  return turn;
}

Turn turnOf(Turn::Kind kind, std::int64_t step) {
  Turn turn = train(step);
  turn.kind = kind;
  return turn;
}

class TrainerTest : public testing::Test {
 protected:
  DataSplits data_ = data();
  FakeClock clock_;
  TinyModel model_{clock_};
  ScriptedSynchronizer sync_{clock_};
  Records records_;
  Trainer trainer_{data_, model_, sync_, records_, 7, clock_};
};

TEST_F(TrainerTest, AStepPushesEveryGradientAndIsRecorded) {
  sync_.turns = {train(4), turnOf(Turn::Kind::kDone, 5)};
  const auto end = trainer_.run();
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_FALSE(end->stopped);
  EXPECT_EQ(end->step, 5);
  EXPECT_THAT(sync_.pushed, ElementsAre(1, 0));
  EXPECT_THAT(sync_.finished, ElementsAre(6.0));
  EXPECT_TRUE(sync_.aborts.empty());
  ASSERT_EQ(model_.keys.size(), 10u);
  EXPECT_EQ(model_.keys.front(), 90);  // positions of this rank
  EXPECT_EQ(model_.keys.back(), 99);
  ASSERT_EQ(records_.records.size(), 1u);
  const StepRecord& r = records_.records[0];
  EXPECT_EQ(r.epoch, 3);
  EXPECT_EQ(r.step, 4);
  EXPECT_EQ(r.rank, 1);
  EXPECT_EQ(r.job_samples, 19);
  EXPECT_EQ(r.first_position, 90);
  EXPECT_EQ(r.samples, 10);
  EXPECT_DOUBLE_EQ(r.loss, 0.25);
  EXPECT_DOUBLE_EQ(r.seconds, 3);
}

TEST_F(TrainerTest, SamplesThatAreReadAheadAreTheSame) {
  data_.prefetch = 2;
  Trainer trainer(data_, model_, sync_, records_, 7, clock_);
  sync_.turns = {train(0), train(1), turnOf(Turn::Kind::kEvaluate, 2), train(4),
                 turnOf(Turn::Kind::kDone, 5)};
  ASSERT_TRUE(trainer.run().ok());
  const std::vector<float> ahead = model_.images;
  EXPECT_EQ(model_.keys.front(), 90);
  sync_.turns = {train(4), turnOf(Turn::Kind::kDone, 5)};
  ASSERT_TRUE(trainer_.run().ok());
  EXPECT_EQ(model_.images, ahead);
  EXPECT_FALSE(ahead.empty());
}

// In modes in which others take steps without this worker.
TEST_F(TrainerTest, ARecordCoversWhatTheJobDidSinceTheLast) {
  sync_.turns = {train(3), train(7), turnOf(Turn::Kind::kEvaluate, 8), train(9),
                 turnOf(Turn::Kind::kStopped, 10)};
  ASSERT_TRUE(trainer_.run().ok());
  ASSERT_EQ(records_.records.size(), 3u);
  EXPECT_EQ(records_.records[0].job_samples, 19);
  EXPECT_DOUBLE_EQ(records_.records[0].seconds, 3);
  EXPECT_EQ(records_.records[1].job_samples, 4 * 19);
  EXPECT_DOUBLE_EQ(records_.records[1].seconds, 4);  // with the wait for its turn
  EXPECT_EQ(records_.records[2].job_samples, 19);    // whatever was done during the evaluation
  EXPECT_DOUBLE_EQ(records_.records[2].seconds, 3);
  EXPECT_DOUBLE_EQ(records_.records[2].train_seconds, 10);
}

TEST_F(TrainerTest, TotalsAddUp) {
  sync_.turns = {train(0), turnOf(Turn::Kind::kEvaluate, 1), train(1),
                 turnOf(Turn::Kind::kStopped, 2)};
  EXPECT_STREQ(trainer_.totals().phase, "Joining");
  const auto end = trainer_.run();
  ASSERT_TRUE(end.ok());
  EXPECT_TRUE(end->stopped);
  const TrainTotals totals = trainer_.totals();
  EXPECT_STREQ(totals.phase, "Done");
  EXPECT_EQ(totals.step, 2);
  EXPECT_EQ(totals.steps, 2u);
  EXPECT_EQ(totals.examples, 20u);
  EXPECT_DOUBLE_EQ(totals.compute_seconds, 4);
  EXPECT_DOUBLE_EQ(totals.wait_seconds, 4 + 2);  // four times next(), two times finish()
  EXPECT_DOUBLE_EQ(totals.last_step_seconds, 3);
  EXPECT_DOUBLE_EQ(totals.step_times.sum(), 6);
  EXPECT_EQ(totals.staleness.counts()[0], 2u);   // nobody else's update came in between
  EXPECT_DOUBLE_EQ(totals.evaluate_seconds, 6);  // 500 samples in two batches
  // Evaluation is no part of the time of training.
  EXPECT_DOUBLE_EQ(records_.records[1].train_seconds, 6);
}

TEST_F(TrainerTest, AStepThatANewEpochEndedDoesNotCount) {
  sync_.complete = false;
  sync_.turns = {train(0), turnOf(Turn::Kind::kStopped, 0)};
  ASSERT_TRUE(trainer_.run().ok());
  EXPECT_TRUE(records_.records.empty());
  EXPECT_EQ(trainer_.totals().steps, 0u);
  EXPECT_EQ(trainer_.totals().examples, 0u);
  EXPECT_DOUBLE_EQ(trainer_.totals().compute_seconds, 2);
}

TEST_F(TrainerTest, AGradientThatIsNotFiniteAbortsAndNothingMoreIsPushed) {
  model_.gradients[1][1] = kNan;  // the first that becomes ready
  sync_.complete = false;
  sync_.turns = {train(3)};
  EXPECT_EQ(trainer_.run().status(), absl::FailedPreconditionError("the job failed"));
  EXPECT_THAT(sync_.aborts, ElementsAre("3|second|the gradient is not finite"));
  EXPECT_TRUE(sync_.pushed.empty());
  EXPECT_TRUE(records_.records.empty());
}

TEST_F(TrainerTest, WhatWasFiniteBeforeHasGoneOut) {
  model_.gradients[0][0] = std::numeric_limits<float>::infinity();
  sync_.complete = false;
  sync_.turns = {train(3)};
  EXPECT_FALSE(trainer_.run().ok());
  EXPECT_THAT(sync_.aborts, ElementsAre("3|first|the gradient is not finite"));
  EXPECT_THAT(sync_.pushed, ElementsAre(1));
}

// The synchronizer is asked for each step: its group may have changed.
TEST_F(TrainerTest, GradientsOnADeviceAreHandedOverUnseen) {
  sync_.on_device_in = 5;
  sync_.turns = {train(4), train(5), train(6), turnOf(Turn::Kind::kDone, 7)};
  ASSERT_TRUE(trainer_.run().ok());
  EXPECT_THAT(sync_.pushed, ElementsAre(1, 0, 1, 0, 1, 0));
  EXPECT_THAT(sync_.pushed_on_device, ElementsAre(false, false, true, true, false, false));
  EXPECT_TRUE(sync_.aborts.empty());
  EXPECT_EQ(records_.records.size(), 3u);
}

TEST_F(TrainerTest, ALossThatIsNotFiniteAborts) {
  model_.loss = kNan;
  sync_.complete = false;
  sync_.turns = {train(3)};
  EXPECT_FALSE(trainer_.run().ok());
  ASSERT_EQ(sync_.aborts.size(), 1u);
  EXPECT_THAT(sync_.aborts[0], HasSubstr("3||the loss is nan"));
}

TEST_F(TrainerTest, EvaluatesTheSliceOfItsRank) {
  sync_.turns = {turnOf(Turn::Kind::kEvaluate, 8), turnOf(Turn::Kind::kDone, 8)};
  ASSERT_TRUE(trainer_.run().ok());
  ASSERT_EQ(model_.evaluated.size(), 2u);
  EXPECT_EQ(model_.evaluated[0].front(), 500);  // the second half of 1000
  EXPECT_EQ(model_.evaluated[0].size(), 250u);
  EXPECT_EQ(model_.evaluated[1].back(), 999);
  ASSERT_EQ(sync_.scores.size(), 1u);
  EXPECT_EQ(sync_.scores[0].samples, 500);
  EXPECT_EQ(sync_.scores[0].hits, 2);
  EXPECT_DOUBLE_EQ(sync_.scores[0].loss_sum, 250);
}

TEST_F(TrainerTest, AnInterruptedEvaluationIsCutShort) {
  sync_.interrupt_after = 1;
  sync_.turns = {turnOf(Turn::Kind::kEvaluate, 8), turnOf(Turn::Kind::kStopped, 8)};
  ASSERT_TRUE(trainer_.run().ok());
  EXPECT_EQ(model_.evaluated.size(), 1u);
}

TEST_F(TrainerTest, FailuresEndTheLoop) {
  sync_.turns = {train(0), turnOf(Turn::Kind::kDone, 1)};
  model_.failure = absl::InternalError("no memory");
  EXPECT_EQ(trainer_.run().status(), model_.failure);
  EXPECT_TRUE(sync_.finished.empty());
  model_.failure = absl::OkStatus();
  records_.answer = absl::DataLossError("positions");
  sync_.turns = {train(0), turnOf(Turn::Kind::kDone, 1)};
  EXPECT_EQ(trainer_.run().status(), records_.answer);
}

}  // namespace
}  // namespace trainyard::runtime
