#include "tests/conformance/synchronizer/synchronizer_conformance.h"

#include <limits>

#include "gmock/gmock.h"

namespace trainyard::runtime::testing {

using ::testing::Each;

void SynchronizerConformance::pushAll(float value) {
  for (int v = kVariables - 1; v >= 0; --v) {
    const float sum = kSamples * (value + static_cast<float>(v));
    auto memory = std::make_shared<std::vector<float>>(kElements, sum);
    EXPECT_TRUE(synchronizer().push({v, std::span<const float>(*memory), memory}));
  }
}

void SynchronizerConformance::expectWeights(float value, float per_variable) {
  for (int v = 0; v < kVariables; ++v)
    EXPECT_THAT(harness_->weights(v), Each(value - per_variable * static_cast<float>(v))) << v;
}

void SynchronizerConformance::takeStep(std::int64_t step, float value) {
  constexpr int kTries = 3;
  for (int i = 0; i < kTries; ++i) {
    const auto turn = next();
    ASSERT_TRUE(turn.ok()) << turn.status();
    ASSERT_EQ(turn->kind, Turn::Kind::kTrain);
    ASSERT_EQ(turn->step, step);
    ASSERT_EQ(turn->first_position, step * kSamples);
    pushAll(value);
    const auto outcome = synchronizer().finish({1.0, kSamples});
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    if (outcome->complete) {
      EXPECT_EQ(outcome->step, step);
      return;
    }
  }
  FAIL() << "step " << step << " was not taken";
}

void StepCommitConformance::updateTwice(const SummedStep& summed) {
  ASSERT_EQ(summed.means.size(), static_cast<std::size_t>(kVariables));
  for (int v = 0; v < kVariables; ++v) {
    const std::span<float> mean = summed.means[static_cast<std::size_t>(v)];
    EXPECT_EQ(mean.size(), kElements);
    for (std::size_t i = 0; i < kElements; ++i) harness_->weights(v)[i] -= 2 * mean[i];
  }
}

TEST_P(SynchronizerConformance, ATurnSaysWhoReadsWhat) {
  const auto turn = next();
  ASSERT_TRUE(turn.ok()) << turn.status();
  EXPECT_EQ(turn->kind, Turn::Kind::kTrain);
  EXPECT_EQ(turn->epoch, kFirstEpoch);
  EXPECT_EQ(turn->step, 0);
  EXPECT_EQ(turn->rank, 0);
  EXPECT_EQ(turn->ranks, 1);
  EXPECT_EQ(turn->first_position, 0);
  EXPECT_EQ(turn->samples, kSamples);
  EXPECT_EQ(turn->step_samples, kSamples);
  EXPECT_FALSE(synchronizer().interrupted());
  EXPECT_FALSE(synchronizer().wantsGradientsOnDevice());
  expectWeights(0, 0);
}

TEST_P(SynchronizerConformance, AStepMakesTheNextVersionFromTheMean) {
  ASSERT_TRUE(next().ok());
  pushAll(3);
  const auto outcome = synchronizer().finish({6.0, kSamples, 3});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome->complete);
  EXPECT_FALSE(outcome->too_late);
  EXPECT_EQ(outcome->step, 0);
  EXPECT_DOUBLE_EQ(outcome->loss, 1.5);
  EXPECT_EQ(outcome->accuracy, 0.75);
  EXPECT_FALSE(outcome->gradient_norm);
  const auto turn = next();
  ASSERT_TRUE(turn.ok()) << turn.status();
  EXPECT_EQ(turn->step, 1);
  EXPECT_EQ(turn->first_position, kSamples);
  expectWeights(-3, 1);
}

// Between two steps, and in the middle of one: whether finish() says that the step counts or that
// it does not, it is taken once.
TEST_P(SynchronizerConformance, NoStepIsLostOrTakenTwiceWhereEpochsChange) {
  takeStep(0, 1);
  harness_->beginEpoch(kFirstEpoch + 1, 1);
  const auto turn = next();
  ASSERT_TRUE(turn.ok()) << turn.status();
  EXPECT_EQ(turn->epoch, kFirstEpoch + 1);
  ASSERT_EQ(turn->step, 1);
  pushAll(2);
  harness_->beginEpoch(kFirstEpoch + 2, 1);
  EXPECT_TRUE(synchronizer().interrupted());
  const auto outcome = synchronizer().finish({1.0, kSamples});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  if (!outcome->complete) {
    EXPECT_FALSE(outcome->too_late);
    takeStep(1, 2);
  }
  const auto after = next();
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->step, 2);
  expectWeights(-3, 2);
}

// finish() may return at once, or when the coordinator has ended the job.
TEST_P(SynchronizerConformance, WhatMustEndTheJobIsSaidOnceAndTheStepDoesNotCount) {
  const std::string kReason = "worker-0: step 0: v1: the gradient is not finite";
  ASSERT_TRUE(next().ok());
  synchronizer().abort(0, "v1", "the gradient is not finite");
  synchronizer().abort(0, "", "the loss is nan");
  EXPECT_EQ(harness_->aborted(), "0|v1|the gradient is not finite");
  harness_->fail(kReason);
  EXPECT_TRUE(synchronizer().interrupted());
  const auto outcome = synchronizer().finish({1.0, kSamples});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_FALSE(outcome->complete);
  EXPECT_FALSE(outcome->too_late);
  EXPECT_EQ(next().status(), absl::FailedPreconditionError(kReason));
  expectWeights(0, 0);
}

TEST_P(SynchronizerConformance, AVersionIsEvaluatedBeforeItsStep) {
  takeStep(0, 1);
  takeStep(1, 1);
  const auto turn = next();
  ASSERT_TRUE(turn.ok()) << turn.status();
  ASSERT_EQ(turn->kind, Turn::Kind::kEvaluate);
  EXPECT_EQ(turn->step, kEvaluateEvery);
  EXPECT_EQ(turn->rank, 0);
  EXPECT_EQ(turn->ranks, 1);
  EXPECT_FALSE(synchronizer().interrupted());
  EXPECT_FALSE(harness_->scored());
  synchronizer().evaluated({7, 9, 2.5});
  const auto score = harness_->scored();
  ASSERT_TRUE(score);
  EXPECT_EQ(score->hits, 7);
  EXPECT_EQ(score->samples, 9);
  EXPECT_DOUBLE_EQ(score->loss_sum, 2.5);
  takeStep(kEvaluateEvery, 1);
}

TEST_P(SynchronizerConformance, AnEvaluationOfAnEarlierEpochIsVoid) {
  takeStep(0, 1);
  takeStep(1, 1);
  ASSERT_EQ(next()->kind, Turn::Kind::kEvaluate);
  harness_->beginEpoch(kFirstEpoch + 1, kEvaluateEvery);
  EXPECT_TRUE(synchronizer().interrupted());
  synchronizer().evaluated({7, 9, 2.5});
  EXPECT_FALSE(harness_->scored());
  const auto turn = next();
  ASSERT_TRUE(turn.ok()) << turn.status();
  EXPECT_EQ(turn->kind, Turn::Kind::kEvaluate);
}

TEST_P(SynchronizerConformance, TheEndIsATurn) {
  takeStep(0, 1);
  for (const Turn::Kind kind : {Turn::Kind::kDone, Turn::Kind::kStopped, Turn::Kind::kLeft}) {
    const auto harness = GetParam().make();
    harness->beginEpoch(kFirstEpoch, 0);
    ASSERT_TRUE(harness->synchronizer().next().ok());
    harness->end(kind, 0);
    EXPECT_TRUE(harness->synchronizer().interrupted());
    const auto turn = harness->synchronizer().next();
    ASSERT_TRUE(turn.ok()) << turn.status();
    EXPECT_EQ(turn->kind, kind);
    EXPECT_EQ(turn->step, 0);
  }
}

// Who copies gradients reads them once, and says what was in them.
TEST_P(SynchronizerConformance, WhoCopiesAGradientSaysThatItIsNotFinite) {
  ASSERT_TRUE(next().ok());
  if (synchronizer().copiesGradients()) {
    const auto memory = std::make_shared<std::vector<float>>(kElements, 1.0F);
    memory->back() = std::numeric_limits<float>::infinity();
    EXPECT_FALSE(synchronizer().push({1, std::span<const float>(*memory), memory}));
  }
  // The step goes on with one that is.
  pushAll(3);
  const auto outcome = synchronizer().finish({6.0, kSamples});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome->complete);
  ASSERT_TRUE(next().ok());
  expectWeights(-3, 1);
}

TEST_P(StepCommitConformance, MeansGoWhereTheyAreAskedFor) {
  ASSERT_TRUE(next().ok());
  pushAll(3);
  std::vector<std::vector<float>> places(kVariables, std::vector<float>(kElements));
  const auto summed = commit().sum({6.0, kSamples}, {places.begin(), places.end()});
  ASSERT_TRUE(summed.ok()) << summed.status();
  ASSERT_TRUE(summed->has_value());
  for (std::size_t v = 0; v < places.size(); ++v) {
    EXPECT_EQ((*summed)->means[v].data(), places[v].data());
    EXPECT_THAT(places[v], Each(3 + static_cast<float>(v)));
  }
  updateTwice(**summed);
  EXPECT_TRUE(commit().commit().complete);
  ASSERT_TRUE(next().ok());
  expectWeights(-6, 2);
}

TEST_P(SynchronizerConformance, WhereNobodyCountsHitsThereIsNoAccuracy) {
  ASSERT_TRUE(next().ok());
  pushAll(3);
  const auto outcome = synchronizer().finish({6.0, kSamples});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome->complete);
  EXPECT_FALSE(outcome->accuracy);
}

TEST_P(StepCommitConformance, TheUpdateIsTheCallers) {
  ASSERT_TRUE(next().ok());
  pushAll(3);
  const auto summed = commit().sum({6.0, kSamples, 0});
  ASSERT_TRUE(summed.ok()) << summed.status();
  ASSERT_TRUE(summed->has_value());
  EXPECT_EQ((*summed)->step, 0);
  EXPECT_DOUBLE_EQ((*summed)->loss, 1.5);
  EXPECT_EQ((*summed)->accuracy, 0.0);
  EXPECT_FALSE((*summed)->gradient_norm);
  expectWeights(0, 0);
  updateTwice(**summed);
  const StepOutcome outcome = commit().commit();
  EXPECT_TRUE(outcome.complete);
  EXPECT_EQ(outcome.step, 0);
  EXPECT_DOUBLE_EQ(outcome.loss, 1.5);
  EXPECT_EQ(outcome.accuracy, 0.0);
  const auto turn = next();
  ASSERT_TRUE(turn.ok()) << turn.status();
  EXPECT_EQ(turn->step, 1);
  expectWeights(-6, 2);
}

// All sums are in, so the others may have taken the step.
TEST_P(StepCommitConformance, AnEpochThatComesDuringTheUpdateBeginsBehindTheStep) {
  ASSERT_TRUE(next().ok());
  pushAll(3);
  const auto summed = commit().sum({6.0, kSamples});
  ASSERT_TRUE(summed.ok()) << summed.status();
  ASSERT_TRUE(summed->has_value());
  harness_->beginEpoch(kFirstEpoch + 1, 1);
  updateTwice(**summed);
  EXPECT_TRUE(commit().commit().complete);
  const auto turn = next();
  ASSERT_TRUE(turn.ok()) << turn.status();
  EXPECT_EQ(turn->epoch, kFirstEpoch + 1);
  EXPECT_EQ(turn->step, 1);
  expectWeights(-6, 2);
}

TEST_P(StepCommitConformance, AnEpochThatComesBeforeTheSumsLeavesTheWeights) {
  ASSERT_TRUE(next().ok());
  pushAll(3);
  harness_->beginEpoch(kFirstEpoch + 1, 0);
  const auto summed = commit().sum({6.0, kSamples});
  ASSERT_TRUE(summed.ok()) << summed.status();
  EXPECT_FALSE(summed->has_value());
  const auto turn = next();
  ASSERT_TRUE(turn.ok()) << turn.status();
  EXPECT_EQ(turn->step, 0);
  EXPECT_EQ(turn->first_position, 0);
  expectWeights(0, 0);
}

}  // namespace trainyard::runtime::testing
