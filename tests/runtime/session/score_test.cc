#include "runtime/session/score.h"

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/session/body.h"

namespace trainyard::runtime::session {
namespace {

using testing::HasSubstr;

constexpr std::array kClickLogits = {-40.0F, -1.0F, 0.0F, 0.5F, 2.0F, 90.0F};
constexpr std::array<std::uint8_t, 6> kClickLabels = {0, 1, 0, 0, 1, 1};

Score clicks() {
  auto score = scoreOfClicks(kClickLogits, kClickLabels);
  EXPECT_TRUE(score.ok()) << score.status();
  return *std::move(score);
}

TEST(SessionScore, OfClicksHasTheirHitsLossAndOrder) {
  const Score score = clicks();
  EXPECT_EQ(score.samples, 6);
  EXPECT_EQ(score.hits, 4);  // 0 is not above 0, and 0.5 is
  double loss = 0;
  for (std::size_t i = 0; i < kClickLogits.size(); ++i)
    loss += std::log(
        1 + std::exp(kClickLabels[i] == 1 ? -double{kClickLogits[i]} : double{kClickLogits[i]}));
  EXPECT_NEAR(score.loss_sum, loss, 1e-9);
  // Of nine pairs those of -1 and 0, and of -1 and 0.5, are in the wrong order.
  EXPECT_NEAR(score.clicks.auc().value_or(0), 7.0 / 9, 1e-12);
  EXPECT_NEAR(score.clicks.predicted, 0.2689 + 0.5 + 0.6225 + 0.8808 + 1, 1e-3);
}

TEST(SessionScore, TravelsWhole) {
  for (const Score& sent : {clicks(), Score{.hits = 3, .samples = 5, .loss_sum = 1.5}, Score{}}) {
    const auto read = decodeScore(encode(sent));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->hits, sent.hits);
    EXPECT_EQ(read->samples, sent.samples);
    EXPECT_EQ(read->loss_sum, sent.loss_sum);
    EXPECT_EQ(read->clicks.negatives, sent.clicks.negatives);
    EXPECT_EQ(read->clicks.positives, sent.clicks.positives);
    EXPECT_EQ(read->clicks.predicted, sent.clicks.predicted);
  }
}

TEST(SessionScore, WhatNoProgramCanMeanIsRefused) {
  struct Sent {
    std::vector<std::uint32_t> bins;
    std::vector<std::uint64_t> counts;
    double predicted = 1;
  };
  const auto refused = [](const Sent& sent, std::int64_t samples) {
    BodyWriter writer;
    writer.number(std::int64_t{0}).number(samples).number(0.0).number(std::uint8_t{1});
    writer.number(sent.predicted);
    writer.numbers(std::span<const std::uint32_t>(sent.bins));
    writer.numbers(std::span<const std::uint64_t>(sent.counts));
    writer.numbers(std::span<const std::uint32_t>()).numbers(std::span<const std::uint64_t>());
    return !decodeScore(writer.take()).ok();
  };
  EXPECT_FALSE(refused({{3, 9}, {2, 3}}, 5));
  EXPECT_TRUE(refused({{3, 9}, {2, 3}}, 4)) << "more clicks than samples";
  EXPECT_TRUE(refused({{9, 3}, {2, 3}}, 5));
  EXPECT_TRUE(refused({{3, 3}, {2, 3}}, 5));
  EXPECT_TRUE(refused({{3, 4096}, {2, 3}}, 5));
  EXPECT_TRUE(refused({{3}, {2, 3}}, 5));
  EXPECT_TRUE(refused({{3, 9}, {0, 3}}, 5));
  EXPECT_TRUE(refused({{3, 9}, {6, std::numeric_limits<std::uint64_t>::max()}}, 5));
  EXPECT_TRUE(refused({{3}, {2}, -1}, 5));
  EXPECT_TRUE(refused({{3}, {2}, std::nan("")}, 5));
}

TEST(SessionScore, NamesWhatIsNoClick) {
  const auto said = [](float logit, std::uint8_t label) {
    const std::array logits = {1.0F, logit};
    const std::array<std::uint8_t, 2> labels = {1, label};
    return std::string(scoreOfClicks(logits, labels).status().message());
  };
  EXPECT_EQ(said(1, 2), "label 2 of sample 1, expected 0 or 1");
  EXPECT_EQ(said(std::nanf(""), 1), "the logit of sample 1 is nan");
  EXPECT_THAT(said(std::numeric_limits<float>::infinity(), 1), HasSubstr("inf"));
}

}  // namespace
}  // namespace trainyard::runtime::session
