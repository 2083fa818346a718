#include "runtime/data/click_scores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/core/rng.h"
#include "gtest/gtest.h"

namespace trainyard::runtime {
namespace {

double logistic(double x) {
  return 1 / (1 + std::exp(-x));
}

struct Sample {
  float logit = 0;
  bool label = false;
};

std::vector<Sample> someSamples(int n) {
  Rng random(5);
  std::vector<Sample> samples;
  for (int i = 0; i < n; ++i) {
    const double logit = 6 * random.unit() - 4;
    samples.push_back({static_cast<float>(logit), random.unit() < logistic(logit)});
  }
  return samples;
}

ClickScores scoresOf(const std::vector<Sample>& samples) {
  ClickScores scores;
  for (const Sample& sample : samples) scores.add(sample.logit, sample.label);
  return scores;
}

// Pair by pair.
double exactAuc(const std::vector<Sample>& samples) {
  double pairs = 0;
  double right = 0;
  for (const Sample& p : samples) {
    for (const Sample& n : samples) {
      if (!p.label || n.label) continue;
      ++pairs;
      right += p.logit > n.logit ? 1 : p.logit == n.logit ? 0.5 : 0;
    }
  }
  return right / pairs;
}

TEST(ClickScores, AucIsThatOfAllPairs) {
  const std::vector<Sample> samples = someSamples(3000);
  EXPECT_NEAR(*scoresOf(samples).auc(), exactAuc(samples), 1e-4);
}

TEST(ClickScores, PartsAddUpInAnyOrder) {
  const std::vector<Sample> samples = someSamples(1000);
  const ClickScores whole = scoresOf(samples);
  ClickScores parts;
  parts.add(scoresOf({samples.begin() + 600, samples.end()}));
  parts.add(ClickScores{});
  parts.add(scoresOf({samples.begin(), samples.begin() + 600}));
  EXPECT_EQ(parts.negatives, whole.negatives);
  EXPECT_EQ(parts.positives, whole.positives);
  EXPECT_NEAR(*parts.calibration(), *whole.calibration(), 1e-12);
}

TEST(ClickScores, RightProbabilitiesAreCalibrated) {
  EXPECT_NEAR(*scoresOf(someSamples(100'000)).calibration(), 1, 0.02);
}

TEST(ClickScores, CalibrationIsOfLogisticProbabilities) {
  ClickScores scores;
  for (const float logit : {-2.0F, 0.0F, 3.0F}) scores.add(logit, true);
  EXPECT_NEAR(*scores.calibration(), (logistic(-2) + 0.5 + logistic(3)) / 3, 1e-12);
}

// Every tenth negative sample, with weight 10, tells of all of them.
TEST(ClickScores, CalibrationIsByWeight) {
  ClickScores all, kept;
  int negatives = 0;
  for (const Sample& sample : someSamples(100'000)) {
    all.add(sample.logit, sample.label);
    if (!sample.label && negatives++ % 10 > 0) continue;
    kept.add(sample.logit, sample.label, sample.label ? 1 : 10);
  }
  EXPECT_NEAR(*kept.calibration(), *all.calibration(), 0.02);
  EXPECT_EQ(kept.positives, all.positives);
}

TEST(ClickScores, OfOneLabelThereIsNoAuc) {
  ClickScores scores;
  EXPECT_FALSE(scores.auc());
  EXPECT_FALSE(scores.calibration());
  scores.add(1, false);
  EXPECT_FALSE(scores.auc());
  EXPECT_FALSE(scores.calibration());
}

TEST(ClickScores, WhatIsBeyondAndWhatIsNoNumberHasItsBin) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  ClickScores scores;
  for (const float logit : {-kInfinity, kInfinity, std::numeric_limits<float>::quiet_NaN()})
    scores.add(logit, false);
  EXPECT_EQ(scores.negatives.front(), 2U);
  EXPECT_EQ(scores.negatives.back(), 1U);
}

TEST(ClickScores, TheBestAndTheWorst) {
  ClickScores best;
  best.add(-100, false);  // beyond the bins
  best.add(100, true);
  EXPECT_EQ(*best.auc(), 1);
  ClickScores worst;
  worst.add(-3, true);
  worst.add(3, false);
  EXPECT_EQ(*worst.auc(), 0);
  ClickScores same;
  same.add(0, true);
  same.add(0, false);
  EXPECT_EQ(*same.auc(), 0.5);
}

}  // namespace
}  // namespace trainyard::runtime
