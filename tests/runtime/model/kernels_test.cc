#include "runtime/model/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "base/core/rng.h"

namespace trainyard::runtime {
namespace {

std::vector<float> randomFloats(std::int64_t n, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<float> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(static_cast<float>(rng.unit() * 2 - 1));
  return values;
}

TEST(Patches, HoldEveryTapAndZerosOutside) {
  for (const std::int64_t channels : {1, 3}) {
    const ImageGrid grid{2, 4, 3, channels};
    const auto images = randomFloats(grid.elements(), 1);
    constexpr int kKernel = 5;
    std::vector<float> out(grid.pixels() * kKernel * kKernel * channels, 99.0f);
    extractPatches(images.data(), grid, kKernel, out.data());
    std::size_t at = 0;
    for (std::int64_t n = 0; n < grid.count; ++n)
      for (std::int64_t y = 0; y < grid.height; ++y)
        for (std::int64_t x = 0; x < grid.width; ++x)
          for (std::int64_t sy = y - 2; sy <= y + 2; ++sy)
            for (std::int64_t sx = x - 2; sx <= x + 2; ++sx)
              for (std::int64_t c = 0; c < channels; ++c) {
                const bool inside = sy >= 0 && sy < grid.height && sx >= 0 && sx < grid.width;
                const std::size_t from = ((n * grid.height + sy) * grid.width + sx) * channels + c;
                ASSERT_EQ(out[at++], inside ? images[from] : 0.0f);
              }
    EXPECT_EQ(at, out.size());
  }
}

struct Pooled {
  std::vector<float> out;
  std::vector<std::int32_t> winners;
};

Pooled pool(const std::vector<float>& in, const ImageGrid& grid, const std::vector<float>& bias) {
  Pooled pooled;
  pooled.out.resize(grid.pooled().elements());
  pooled.winners.resize(grid.pooled().elements());
  poolBiasRelu(in.data(), grid, bias.data(), pooled.out.data(), pooled.winners.data());
  return pooled;
}

TEST(Pool, TakesTheLargestOfEachWindowAlsoAtOddEdges) {
  const ImageGrid grid{2, 5, 3, 6};
  const auto in = randomFloats(grid.elements(), 2);
  const auto bias = randomFloats(grid.channels, 3);
  const Pooled pooled = pool(in, grid, bias);
  std::vector<float> without_winners(pooled.out.size());
  poolBiasRelu(in.data(), grid, bias.data(), without_winners.data(), nullptr);
  EXPECT_EQ(without_winners, pooled.out);
  std::size_t at = 0;
  for (std::int64_t n = 0; n < 2; ++n)
    for (std::int64_t y = 0; y < 3; ++y)
      for (std::int64_t x = 0; x < 2; ++x)
        for (std::int64_t c = 0; c < 6; ++c, ++at) {
          float best = -std::numeric_limits<float>::infinity();
          int winner = -1;
          for (int q = 0; q < 4; ++q) {
            const std::int64_t sy = 2 * y + q / 2, sx = 2 * x + q % 2;
            if (sy >= grid.height || sx >= grid.width) continue;
            const float v = in[((n * grid.height + sy) * grid.width + sx) * 6 + c];
            if (v > best) best = v, winner = q;
          }
          ASSERT_EQ(pooled.out[at], std::max(0.0f, best + bias[c]));
          ASSERT_EQ(pooled.winners[at], best + bias[c] > 0 ? winner : -1);
        }
}

TEST(Pool, GradientGoesToTheWinnerAndTheBias) {
  const ImageGrid grid{3, 5, 5, 4};
  const auto in = randomFloats(grid.elements(), 4);
  const auto bias = randomFloats(grid.channels, 5);
  const Pooled pooled = pool(in, grid, bias);
  const auto grad = randomFloats(grid.pooled().elements(), 6);
  std::vector<float> in_grad(in.size(), 77.0f);
  std::vector<float> bias_grad(4, 1.0f);
  poolBiasReluBackward(grad.data(), pooled.winners.data(), grid, in_grad.data(), bias_grad.data());
  double passed = 0;
  for (std::size_t i = 0; i < grad.size(); ++i) passed += pooled.winners[i] >= 0 ? grad[i] : 0;
  EXPECT_NEAR(std::accumulate(in_grad.begin(), in_grad.end(), 0.0), passed, 1e-4);
  EXPECT_NEAR(std::accumulate(bias_grad.begin(), bias_grad.end(), -4.0), passed, 1e-4);
  // Moving one input moves the output by its gradient.
  const auto objective = [&](const std::vector<float>& values) {
    const Pooled p = pool(values, grid, bias);
    double sum = 0;
    for (std::size_t i = 0; i < grad.size(); ++i) sum += double(grad[i]) * p.out[i];
    return sum;
  };
  for (std::size_t i = 0; i < in.size(); i += 7) {
    std::vector<float> up = in, down = in;
    up[i] += 1e-3f, down[i] -= 1e-3f;
    EXPECT_NEAR((objective(up) - objective(down)) / 2e-3, in_grad[i], 1e-3) << i;
  }
}

TEST(Pool, EqualElementsGiveTheFirstOneTheGradient) {
  const ImageGrid grid{1, 2, 2, 1};
  const Pooled pooled = pool({3, 3, 3, 3}, grid, {0});
  EXPECT_EQ(pooled.winners[0], 0);
}

// Windows of whole pixels only; the last row and column of 5x3 belong to none.
TEST(WholePool, LeavesOutAnOddEdgeAndSendsGradientsToTheFirstOfEqualOnes) {
  const ImageGrid grid{2, 5, 3, 1};
  std::vector<float> in(30, 9.0f);  // what is left out is the largest
  const float windows[] = {1, 2, 4, 3, /**/ 7, 7, 5, 7};
  for (int n = 0; n < 2; ++n) {
    for (int row = 0; row < 2; ++row) {
      float* first = in.data() + n * 15 + row * 6;
      const float* window = windows + row * 4;
      first[0] = window[0];
      first[1] = window[1];
      first[3] = window[2];
      first[4] = window[3];
    }
  }
  std::vector<float> out(4);
  std::vector<std::int32_t> winners(4);
  maxPool(in.data(), grid, out.data(), winners.data());
  EXPECT_EQ(out, (std::vector<float>{4, 7, 4, 7}));
  EXPECT_EQ(winners, (std::vector<std::int32_t>{2, 0, 2, 0}));
  std::vector<float> without(4);
  maxPool(in.data(), grid, without.data(), nullptr);
  EXPECT_EQ(without, out);
  const std::vector<float> gradient{10, 20, 30, 40};
  std::vector<float> back(30, -1.0f);
  maxPoolBackward(gradient.data(), winners.data(), grid, back.data());
  std::vector<float> expected(30, 0.0f);
  expected[3] = 10;
  expected[6] = 20;
  expected[15 + 3] = 30;
  expected[15 + 6] = 40;
  EXPECT_EQ(back, expected);
}

TEST(Pixels, AreFilledWithTheBiasAndSummed) {
  const ImageGrid grid{2, 3, 2, 3};
  const std::vector<float> bias{1, 2, 3};
  std::vector<float> pixels(36);
  fillPixels(bias.data(), grid, pixels.data());
  EXPECT_EQ(pixels[0], 1);
  EXPECT_EQ(pixels[35], 3);
  pixels[4] += 100;
  std::vector<float> sum(3, -7.0f);
  sumPixels(pixels.data(), grid, sum.data());
  EXPECT_EQ(sum, (std::vector<float>{12, 124, 36}));
}

// A plain float sum of these loses one in a thousand.
TEST(Pixels, ManyOfThemLoseNoDigits) {
  const ImageGrid grid{4, 300, 300, 1};
  const std::vector<float> pixels(static_cast<std::size_t>(grid.elements()), 0.1f);
  float sum = 0;
  sumPixels(pixels.data(), grid, &sum);
  EXPECT_NEAR(sum, 36000.0, 0.05);
}

TEST(NanPasses, ThroughPoolReluAndLoss) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const ImageGrid grid{1, 2, 2, 1};
  EXPECT_TRUE(std::isnan(pool({nan, nan, nan, nan}, grid, {0}).out[0]));
  EXPECT_TRUE(std::isnan(pool({1, 2, 3, 4}, grid, {nan}).out[0]));
  std::vector<float> values{nan, -1, 2};
  relu(values);
  EXPECT_TRUE(std::isnan(values[0]));
  EXPECT_EQ(values[1], 0);
  const std::vector<float> logits{0, nan, 1};
  const std::vector<std::int64_t> labels{0};
  EXPECT_TRUE(std::isnan(softmaxCrossEntropy(logits.data(), 3, labels, nullptr).loss));
}

TEST(DropoutMask, DependsOnTheSampleNotOnTheBatch) {
  constexpr std::int64_t kUnits = 103;  // no multiple of Philox's four words
  const Dropout dropout{11, 0.5, 2};
  const auto mask = [&](std::vector<std::int64_t> keys, const Dropout& d) {
    std::vector<float> values(keys.size() * kUnits, 1.0f);
    reluDropout(values.data(), kUnits, keys, d);
    return values;
  };
  const auto both = mask({5, 1'000'000'007}, dropout);
  const auto second = mask({1'000'000'007}, dropout);
  EXPECT_TRUE(std::equal(second.begin(), second.end(), both.begin() + kUnits));
  EXPECT_NE(mask({5}, dropout), mask({6}, dropout));
  EXPECT_NE(mask({5}, dropout), mask({5}, Dropout{12, 0.5, 2}));
  EXPECT_NE(mask({5}, dropout), mask({5}, Dropout{11, 0.5, 3}));
}

TEST(DropoutMask, DropsTheRateAndKeepsTheMean) {
  constexpr std::int64_t kUnits = 1000;
  std::vector<std::int64_t> keys(200);
  std::iota(keys.begin(), keys.end(), 40);
  for (const double rate : {0.1, 0.5, 0.9}) {
    std::vector<float> values(keys.size() * kUnits, 1.0f);
    reluDropout(values.data(), kUnits, keys, {3, rate, 0});
    std::int64_t dropped = 0;
    for (const float v : values) {
      ASSERT_TRUE(v == 0.0f || v == dropoutScale(rate));
      if (v == 0.0f) ++dropped;
    }
    const double n = static_cast<double>(values.size());
    EXPECT_NEAR(dropped / n, rate, 5 * std::sqrt(rate * (1 - rate) / n));
    EXPECT_NEAR(std::accumulate(values.begin(), values.end(), 0.0) / n, 1.0,
                5 * std::sqrt(rate / (1 - rate) / n));
  }
}

TEST(Loss, SumHitsAndGradient) {
  const std::vector<float> logits{1, 2, 0.5f, -1, 0, 3};
  const std::vector<std::int64_t> labels{1, 0};
  std::vector<float> grad(6);
  const LossSum sum = softmaxCrossEntropy(logits.data(), 3, labels, grad.data());
  EXPECT_EQ(sum.hits, 1);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    auto up = logits, down = logits;
    up[i] += 1e-3f, down[i] -= 1e-3f;
    const double slope = (softmaxCrossEntropy(up.data(), 3, labels, nullptr).loss -
                          softmaxCrossEntropy(down.data(), 3, labels, nullptr).loss) /
                         (double(up[i]) - down[i]);
    EXPECT_NEAR(grad[i], slope, 1e-5);
  }
  const double first = std::log(std::exp(1.0) + std::exp(2.0) + std::exp(0.5)) - 2;
  const double second = std::log(std::exp(-1.0) + 1 + std::exp(3.0)) + 1;
  EXPECT_NEAR(sum.loss, first + second, 1e-9);
}

TEST(Loss, LargeLogitsStayFinite) {
  const std::vector<float> logits{1e30f, -1e30f};
  const std::vector<std::int64_t> labels{0};
  EXPECT_EQ(softmaxCrossEntropy(logits.data(), 2, labels, nullptr).loss, 0);
}

// TensorFlow's sigmoid_cross_entropy_with_logits: max(x, 0) - x * z + log(1 + exp(-|x|)).
TEST(LogLoss, IsTensorFlowsAlsoOfLargeLogits) {
  for (const float logit : {0.0f, 0.5f, -3.0f, 20.0f, -20.0f, 100.0f, -100.0f, 1e30f, -1e30f}) {
    for (const std::int64_t label : {0, 1}) {
      float slope = 0;
      const LossSum sum = sigmoidCrossEntropy(&logit, std::span(&label, 1), &slope);
      const auto x = static_cast<double>(logit);
      const double expected =
          std::max(x, 0.0) - x * static_cast<double>(label) + std::log1p(std::exp(-std::fabs(x)));
      EXPECT_DOUBLE_EQ(sum.loss, expected) << logit << " " << label;
      EXPECT_NEAR(slope, 1 / (1 + std::exp(-x)) - static_cast<double>(label), 1e-7);
      EXPECT_EQ(sum.hits, (logit > 0) == (label == 1) ? 1 : 0) << logit << " " << label;
    }
  }
}

TEST(LogLoss, IsASumAndLetsNanThrough) {
  const std::vector<float> logits{1, -2, 0.5f};
  const std::vector<std::int64_t> labels{1, 1, 0};
  double loss = 0;
  for (std::size_t i = 0; i < 3; ++i)
    loss += sigmoidCrossEntropy(&logits[i], std::span(labels).subspan(i, 1), nullptr).loss;
  const LossSum sum = sigmoidCrossEntropy(logits.data(), labels, nullptr);
  EXPECT_DOUBLE_EQ(sum.loss, loss);
  EXPECT_EQ(sum.hits, 1);
  const float broken = std::numeric_limits<float>::quiet_NaN();
  float slope = 0;
  EXPECT_TRUE(std::isnan(sigmoidCrossEntropy(&broken, std::span(labels).first(1), &slope).loss));
  EXPECT_TRUE(std::isnan(slope));
}

}  // namespace
}  // namespace trainyard::runtime
