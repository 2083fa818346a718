#include "runtime/train/training_session.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "tests/runtime/train/fake_synchronizer.h"

namespace trainyard::runtime {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

constexpr int kSamples = 10;
constexpr std::int64_t kDataset = 64;
constexpr std::uint64_t kSeed = 7;

class Notes : public TrainObserver {
 public:
  Status onStep(const StepRecord& record) override {
    records.push_back(record);
    return answer;
  }
  void onSpan(std::string_view name, std::int64_t step, TimePoint start, TimePoint end) override {
    spans.push_back(fmt::format("{} {} {}", name, step, toSeconds(end - start)));
  }
  std::vector<StepRecord> records;
  std::vector<std::string> spans;
  Status answer = absl::OkStatus();
};

// Whoever computes: two variables of two elements. Each wait takes a second.
class TrainingSessionTest : public testing::Test {
 protected:
  TrainingSessionTest() { sync_.beginEpoch(3, 4); }

  void advance(int seconds) { clock_.advance(std::chrono::seconds(seconds)); }
  Status push(int variable, float value = 1) {
    auto memory = std::make_shared<std::vector<float>>(2, value * kSamples);
    return session_.push({variable, *memory, memory});
  }
  void pushBoth(float value = 1) {
    EXPECT_TRUE(push(1, value).ok());
    EXPECT_TRUE(push(0, value).ok());
  }
  // A step that computes for two seconds.
  StepOutcome step() {
    const auto turn = session_.next();
    EXPECT_TRUE(turn.ok()) << turn.status();
    EXPECT_EQ(turn->kind, Turn::Kind::kTrain);
    session_.computing();
    advance(2);
    pushBoth();
    const auto outcome = session_.finish({25, kSamples});
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    return outcome.value_or(StepOutcome{});
  }
  std::vector<std::int64_t> samplesAt(std::int64_t first) {
    std::vector<std::int64_t> samples(kSamples);
    SampleStream(kSeed, kDataset).lookUp(first, samples);
    return samples;
  }

  FakeClock clock_;
  Notes notes_;
  std::vector<std::vector<float>> weights_ = {{0, 0}, {0, 0}};
  FakeSynchronizer sync_{{.samples = kSamples,
                          .evaluate_every = 6,
                          .rank = 1,
                          .ranks = 3,
                          .wait = [this] { advance(1); }},
                         {weights_[0], weights_[1]}};
  const SessionOptions options_{
      {"first", "second"}, kSeed, kDataset, /*evaluation_samples=*/100, /*order=*/{}};
  TrainingSession session_{options_, sync_, notes_, clock_, &sync_};
};

TEST_F(TrainingSessionTest, SamplesAreInTheOrderOfTheData) {
  SessionOptions options = options_;
  options.order.kind = SampleOrder::Kind::kSequential;
  TrainingSession session(options, sync_, notes_, clock_, &sync_);
  ASSERT_TRUE(session.next().ok());
  EXPECT_THAT(session.samples(), ElementsAreArray(session.positions())) << "of the first pass";
}

TEST_F(TrainingSessionTest, AStepIsDrivenFromOutside) {
  const auto turn = session_.next();
  ASSERT_TRUE(turn.ok()) << turn.status();
  EXPECT_EQ(turn->step, 4);
  EXPECT_EQ(session_.positions().front(), 40);
  EXPECT_EQ(session_.positions().back(), 49);
  EXPECT_THAT(session_.samples(), ElementsAreArray(samplesAt(40)));
  advance(5);
  session_.computing();
  advance(2);
  pushBoth(3);
  const auto outcome = session_.finish({25, kSamples, 4});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome->complete);
  EXPECT_EQ(outcome->step, 4);
  EXPECT_DOUBLE_EQ(outcome->loss, 2.5);
  EXPECT_THAT(sync_.pushed, ElementsAre(1, 0));
  EXPECT_THAT(weights_[0], Each(-3.0F));
  ASSERT_EQ(notes_.records.size(), 1u);
  const StepRecord& record = notes_.records[0];
  EXPECT_EQ(record.epoch, 3);
  EXPECT_EQ(record.step, 4);
  EXPECT_EQ(record.rank, 1);
  EXPECT_EQ(record.first_position, 40);
  EXPECT_EQ(record.samples, kSamples);
  EXPECT_EQ(record.job_samples, kSamples);
  EXPECT_DOUBLE_EQ(record.loss, 2.5);
  EXPECT_EQ(record.accuracy, 0.4);
  EXPECT_DOUBLE_EQ(record.seconds, 8);
  EXPECT_THAT(notes_.spans, ElementsAre("wait 4 1", "data 4 5", "compute 4 2", "wait 4 1"));
}

// A program that does not say when it has its data has computed all the time.
TEST_F(TrainingSessionTest, WithoutAWordOfItsDataAStepIsComputing) {
  ASSERT_TRUE(session_.next().ok());
  advance(4);
  pushBoth();
  ASSERT_TRUE(session_.finish({25, kSamples}).ok());
  EXPECT_DOUBLE_EQ(session_.totals().data_seconds, 0);
  EXPECT_DOUBLE_EQ(session_.totals().compute_seconds, 4);
}

TEST_F(TrainingSessionTest, AStepThatAnEpochEndedComesAgainWithTheSameSamples) {
  ASSERT_TRUE(session_.next().ok());
  pushBoth();
  sync_.beginEpoch(5, 4);
  EXPECT_TRUE(session_.interrupted());
  auto outcome = session_.finish({25, kSamples});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_FALSE(outcome->complete);
  EXPECT_TRUE(notes_.records.empty());
  EXPECT_TRUE(step().complete);
  EXPECT_THAT(session_.samples(), ElementsAreArray(samplesAt(40)));
  EXPECT_THAT(weights_[1], Each(-1.0F));
  EXPECT_EQ(session_.totals().steps, 1u);
  EXPECT_EQ(session_.totals().examples, static_cast<std::uint64_t>(kSamples));
}

// Around a ring others may have a sum that this worker gave up: its gradient is in it.
TEST_F(TrainingSessionTest, AStepThatOthersTookWithItsGradientIsRecorded) {
  FakeSynchronizer ring({.samples = kSamples, .rank = 1, .ranks = 3, .all_ranks = true},
                        {weights_[0], weights_[1]});
  TrainingSession session(options_, ring, notes_, clock_);
  const auto giveUp = [&](std::int64_t first_step_of_next) {
    ASSERT_TRUE(session.next().ok());
    auto memory = std::make_shared<std::vector<float>>(2, 1.0F);
    ASSERT_TRUE(session.push({0, *memory, memory}).ok());
    ASSERT_TRUE(session.push({1, *memory, memory}).ok());
    const std::int64_t epoch = ring.epoch() + 1;
    ring.beginEpoch(epoch, first_step_of_next);
    const auto outcome = session.finish({25, kSamples, 5});
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_FALSE(outcome->complete);
  };
  ring.beginEpoch(3, 4);
  giveUp(4);
  ASSERT_TRUE(session.next().ok());
  EXPECT_TRUE(notes_.records.empty()) << "it comes again";
  ring.beginEpoch(5, 4);
  giveUp(5);
  EXPECT_TRUE(notes_.records.empty()) << "not known yet";
  ASSERT_EQ(session.next()->step, 5);
  ASSERT_EQ(notes_.records.size(), 1u);
  EXPECT_EQ(notes_.records[0].step, 4);
  EXPECT_EQ(notes_.records[0].epoch, 5);
  EXPECT_EQ(notes_.records[0].rank, 1);
  EXPECT_EQ(notes_.records[0].first_position, 40);
  EXPECT_EQ(notes_.records[0].samples, kSamples);
  EXPECT_DOUBLE_EQ(notes_.records[0].loss, 2.5);
  EXPECT_EQ(session.totals().steps, 1u);
  EXPECT_EQ(session.totals().examples, static_cast<std::uint64_t>(kSamples));
  // A server's job may have gone on without it.
  ASSERT_TRUE(session_.next().ok());
  pushBoth();
  sync_.beginEpoch(4, 5);
  ASSERT_FALSE(session_.finish({25, kSamples})->complete);
  ASSERT_EQ(session_.next()->step, 5);
  EXPECT_EQ(notes_.records.size(), 1u);
}

// The last step may be known to be taken before its answers are here; or the job has stopped before
// it.
TEST_F(TrainingSessionTest, ALastStepWhoseAnswerComesTooLateIsRecorded) {
  for (const std::int64_t taken : {5, 4}) {
    FakeSynchronizer all({.samples = kSamples, .rank = 1, .ranks = 3, .all_ranks = true},
                         {weights_[0], weights_[1]});
    TrainingSession session(options_, all, notes_, clock_);
    all.beginEpoch(3, 4);
    ASSERT_TRUE(session.next().ok());
    auto memory = std::make_shared<std::vector<float>>(2, 1.0F);
    for (const int variable : {0, 1}) ASSERT_TRUE(session.push({variable, *memory, memory}).ok());
    all.skipTo(taken);
    all.end(taken == 5 ? Turn::Kind::kDone : Turn::Kind::kStopped);
    const auto outcome = session.finish({25, kSamples, 5});
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_FALSE(outcome->complete);
    EXPECT_TRUE(notes_.records.empty());
    ASSERT_TRUE(session.next().ok());
    ASSERT_EQ(notes_.records.size(), taken == 5 ? 1u : 0u);
    EXPECT_EQ(session.totals().steps, taken == 5 ? 1u : 0u);
    if (taken == 5) {
      EXPECT_EQ(notes_.records[0].step, 4);
      EXPECT_EQ(notes_.records[0].first_position, 40);
      EXPECT_DOUBLE_EQ(notes_.records[0].loss, 2.5);
      EXPECT_EQ(notes_.records[0].accuracy, 0.5);
    }
    notes_.records.clear();
  }
}

// What would hold up or mislead the others is refused before it leaves.
TEST_F(TrainingSessionTest, EachVariableBringsOneGradient) {
  ASSERT_TRUE(session_.next().ok());
  EXPECT_TRUE(push(0).ok());
  EXPECT_EQ(push(0), absl::InvalidArgumentError("two gradients of first in one step"));
  EXPECT_EQ(push(2), absl::InvalidArgumentError("a gradient of variable 2, there are 2"));
  EXPECT_EQ(push(-1), absl::InvalidArgumentError("a gradient of variable -1, there are 2"));
  EXPECT_EQ(session_.finish({25, kSamples}).status(),
            absl::InvalidArgumentError("no gradient of second in step 4"));
  EXPECT_THAT(sync_.pushed, ElementsAre(0));
  EXPECT_THAT(weights_[0], Each(0.0F));
  EXPECT_TRUE(step().complete);
}

TEST_F(TrainingSessionTest, NothingLeavesAfterAGradientThatIsNotFinite) {
  ASSERT_TRUE(session_.next().ok());
  EXPECT_TRUE(push(1, std::numeric_limits<float>::infinity()).ok());
  EXPECT_TRUE(push(0).ok());
  EXPECT_TRUE(sync_.pushed.empty());
  EXPECT_EQ(sync_.aborted, "4|second|the gradient is not finite");
  const auto outcome = session_.finish({25, kSamples});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_FALSE(outcome->complete);
  sync_.fail("not finite");
  EXPECT_EQ(session_.next().status(), absl::FailedPreconditionError("not finite"));
}

TEST_F(TrainingSessionTest, ALossThatIsNotFiniteEndsTheJob) {
  ASSERT_TRUE(session_.next().ok());
  pushBoth();
  const auto outcome = session_.finish({std::nan(""), kSamples});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_FALSE(outcome->complete);
  EXPECT_THAT(sync_.aborted, HasSubstr("4||the loss is nan"));
}

TEST_F(TrainingSessionTest, AGradientOnADeviceIsNotLookedAt) {
  sync_.on_device = true;
  ASSERT_TRUE(session_.next().ok());
  EXPECT_TRUE(session_.wantsGradientsOnDevice());
  constexpr const float* kElsewhere = nullptr;
  for (const int v : {0, 1})
    EXPECT_TRUE(session_.push({v, std::span(kElsewhere, 2), nullptr, {}, true}).ok());
  EXPECT_TRUE(session_.finish({25, kSamples})->complete);
  EXPECT_TRUE(sync_.aborted.empty());
}

// Its time belongs to the next step that is taken; the time of one that an epoch ended does not.
TEST_F(TrainingSessionTest, AGradientThatCameTooLateIsCounted) {
  EXPECT_TRUE(step().complete);
  sync_.beTooLate();
  EXPECT_TRUE(step().too_late);
  sync_.beginEpoch(3, 7);  // the same one: the others went on
  EXPECT_TRUE(step().complete);
  EXPECT_EQ(session_.totals().too_late, 1u);
  EXPECT_EQ(session_.totals().steps, 2u);
  ASSERT_EQ(notes_.records.size(), 2u);
  EXPECT_EQ(notes_.records[1].job_samples, 3 * kSamples);
  EXPECT_DOUBLE_EQ(notes_.records[1].seconds, 8);
}

// In modes in which others update the weights of a gradient before it does.
TEST_F(TrainingSessionTest, StalenessIsCountedInSteps) {
  EXPECT_TRUE(step().complete);
  ASSERT_TRUE(session_.next().ok());
  pushBoth();
  sync_.skipTo(8);
  EXPECT_EQ(session_.finish({25, kSamples})->step, 8);
  EXPECT_DOUBLE_EQ(session_.totals().staleness.sum(), 3);
  EXPECT_EQ(session_.totals().step, 9);
}

TEST_F(TrainingSessionTest, ARankScoresItsRange) {
  step();
  step();
  const auto turn = session_.next();
  ASSERT_TRUE(turn.ok()) << turn.status();
  ASSERT_EQ(turn->kind, Turn::Kind::kEvaluate);
  EXPECT_STREQ(session_.totals().phase, "Evaluating");
  EXPECT_EQ(session_.evaluationRange(), evaluationSlice(100, 3, 1));
  EXPECT_EQ(session_.evaluationRange().first, 33);
  advance(9);
  session_.evaluated({20, 33, 1.5});
  ASSERT_EQ(sync_.scores.size(), 1u);
  EXPECT_EQ(sync_.scores[0].hits, 20);
  EXPECT_DOUBLE_EQ(session_.totals().evaluate_seconds, 9);
  EXPECT_EQ(notes_.spans.back(), "evaluate 6 9");
  step();
  // The steps around it: neither its time nor the job's during it.
  EXPECT_DOUBLE_EQ(notes_.records[2].seconds, 3);
  EXPECT_EQ(notes_.records[2].job_samples, kSamples);
}

TEST_F(TrainingSessionTest, TotalsSayHowItStands) {
  EXPECT_STREQ(session_.totals().phase, "Joining");
  step();
  EXPECT_STREQ(session_.totals().phase, "Training");
  EXPECT_EQ(session_.totals().step, 5);
  EXPECT_DOUBLE_EQ(session_.totals().last_step_seconds, 3);
  EXPECT_DOUBLE_EQ(session_.totals().wait_seconds, 2);
  sync_.end(Turn::Kind::kStopped);
  const auto turn = session_.next();
  ASSERT_TRUE(turn.ok()) << turn.status();
  EXPECT_EQ(turn->kind, Turn::Kind::kStopped);
  EXPECT_STREQ(session_.totals().phase, "Done");
}

// An optimizer of the caller's own: its time is computing.
TEST_F(TrainingSessionTest, TheCallersUpdateIsBetweenSumAndCommit) {
  ASSERT_TRUE(session_.next().ok());
  advance(2);
  pushBoth(3);
  const auto summed = session_.sum({25, kSamples});
  ASSERT_TRUE(summed.ok()) << summed.status();
  ASSERT_TRUE(summed->has_value());
  EXPECT_THAT((*summed)->means[0], Each(3.0F));
  EXPECT_TRUE(notes_.records.empty());
  EXPECT_EQ(session_.next().status(),
            absl::FailedPreconditionError("step 4 is summed and not committed"));
  advance(4);
  weights_[0] = {7, 7};
  const auto outcome = session_.commit();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome->complete);
  EXPECT_EQ(outcome->step, 4);
  EXPECT_THAT(weights_[0], Each(7.0F));
  ASSERT_EQ(notes_.records.size(), 1u);
  EXPECT_EQ(notes_.records[0].step, 4);
  EXPECT_DOUBLE_EQ(notes_.records[0].seconds, 7);
  EXPECT_DOUBLE_EQ(session_.totals().compute_seconds, 6);
  EXPECT_DOUBLE_EQ(session_.totals().wait_seconds, 2);
  EXPECT_THAT(notes_.spans,
              ElementsAre("wait 4 1", "data 4 0", "compute 4 2", "wait 4 1", "update 4 4"));
  EXPECT_EQ(session_.commit().status(), absl::FailedPreconditionError("no step is summed"));
}

// What a rank is told that updates its weights itself, where a step has too few samples for all.
TEST_F(TrainingSessionTest, AStepWithoutSamplesTakesNoGradient) {
  FakeSynchronizer none({.samples = 0}, {weights_[0], weights_[1]});
  TrainingSession session(options_, none, notes_, clock_, &none);
  ASSERT_TRUE(session.next().ok());
  EXPECT_TRUE(session.samples().empty());
  EXPECT_EQ(
      session.push({0, weights_[0], nullptr}),
      absl::InvalidArgumentError("a gradient in step 0, which has no samples for this worker"));
  const auto summed = session.sum({0, 0});
  ASSERT_TRUE(summed.ok()) << summed.status();
  ASSERT_TRUE(summed->has_value());
  EXPECT_TRUE(session.commit()->complete);
  EXPECT_EQ(session.totals().steps, 1u);
  EXPECT_EQ(session.totals().examples, 0u);
}

TEST_F(TrainingSessionTest, AStepThatIsNotSummedComesAgain) {
  ASSERT_TRUE(session_.next().ok());
  pushBoth();
  sync_.beginEpoch(5, 4);
  const auto summed = session_.sum({25, kSamples});
  ASSERT_TRUE(summed.ok()) << summed.status();
  EXPECT_FALSE(summed->has_value());
  EXPECT_TRUE(notes_.records.empty());
  const auto turn = session_.next();
  ASSERT_TRUE(turn.ok()) << turn.status();
  EXPECT_EQ(turn->step, 4);
}

TEST_F(TrainingSessionTest, WhereServersTakeTheStepsThereIsNothingToCommit) {
  TrainingSession session(options_, sync_, notes_, clock_);
  ASSERT_TRUE(session.next().ok());
  EXPECT_EQ(session.sum({25, kSamples}).status(),
            absl::FailedPreconditionError("parameter servers take the steps of this job"));
}

TEST_F(TrainingSessionTest, TheObserversErrorIsTheSteps) {
  notes_.answer = absl::DataLossError("positions");
  ASSERT_TRUE(session_.next().ok());
  pushBoth();
  EXPECT_EQ(session_.finish({25, kSamples}).status(), notes_.answer);
}

}  // namespace
}  // namespace trainyard::runtime
