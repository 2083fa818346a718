#include "runtime/ring/replica.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace trainyard::runtime::ring {
namespace {

Variable variable(const std::string& name, std::vector<std::int64_t> shape) {
  Variable v;
  v.name = name;
  v.shape = std::move(shape);
  return v;
}

struct Bench {
  explicit Bench(double clip_norm = 0) {
    spec.set_name("Momentum");
    spec.set_learning_rate(0.5);
    spec.set_momentum(0.5);
    optimizer = *makeOptimizer(spec);
    v1::PlacementSpec all;
    all.set_strategy("Balanced");
    placement = *place(all, {variable("a", {3}), variable("b", {5000})}, 1);
    replica = std::make_unique<Replica>(placement, std::vector<std::span<float>>{a, b}, *optimizer,
                                        LearningRate(spec), clip_norm);
  }
  std::vector<std::span<float>> sums() { return {sum_a, sum_b}; }

  v1::OptimizerSpec spec;
  std::unique_ptr<Optimizer> optimizer;
  Placement placement;
  std::vector<float> a = std::vector<float>(3, 1);
  std::vector<float> b = std::vector<float>(5000, 2);
  std::vector<float> sum_a = std::vector<float>(3, 4);
  std::vector<float> sum_b = std::vector<float>(5000, 8);
  std::unique_ptr<Replica> replica;
};

TEST(Replica, TakesAStepOfTheMeanGradient) {
  Bench bench;
  auto sums = bench.sums();
  const Replica::Means means = bench.replica->average(sums, 4, sums);
  EXPECT_FALSE(means.not_finite.has_value());
  EXPECT_FALSE(means.norm.has_value());
  bench.replica->update(0, sums);
  EXPECT_EQ(bench.a, std::vector<float>(3, 0.5F));     // 1 - 0.5 x 1
  EXPECT_EQ(bench.b, std::vector<float>(5000, 1.0F));  // 2 - 0.5 x 2
  const auto arrays = bench.replica->arrays();
  ASSERT_EQ(arrays.size(), 4u) << "weights and one slot";
  EXPECT_EQ(arrays[3][4999], 2.0F) << "the accumulated gradient";
}

TEST(Replica, ClipsByTheNormOfAllVariables) {
  Bench bench(1);
  auto sums = bench.sums();
  const Replica::Means means = bench.replica->average(sums, 4, sums);
  const double norm = std::sqrt(3 * 1.0 + 5000 * 4.0);
  ASSERT_TRUE(means.norm.has_value());
  EXPECT_DOUBLE_EQ(*means.norm, norm);
  EXPECT_FLOAT_EQ(sums[1][17], static_cast<float>(2 / norm));
}

TEST(Replica, MakesMeansInArraysOfTheCallers) {
  for (const double clip : {0.0, 1.0}) {
    Bench bench(clip);
    std::vector<float> a(3);
    std::vector<float> b(5000);
    const Replica::Means found = bench.replica->average(bench.sums(), 4, {a, b});
    EXPECT_FALSE(found.not_finite.has_value());
    const float scale = clip > 0 ? static_cast<float>(clip / *found.norm) : 1.0F;
    EXPECT_EQ(a, std::vector<float>(3, 1 * scale));
    EXPECT_EQ(b, std::vector<float>(5000, 2 * scale));
    EXPECT_EQ(bench.sum_b, std::vector<float>(5000, 8)) << "the sums are left alone";
  }
}

TEST(Replica, NamesTheVariableWhoseSumIsNotFinite) {
  Bench bench;
  bench.sum_b[4000] = std::numeric_limits<float>::infinity();
  auto sums = bench.sums();
  EXPECT_EQ(bench.replica->average(sums, 4, sums).not_finite, 1);
}

TEST(Replica, WhatACopyHoldsMakesTheSameReplica) {
  Bench bench;
  for (std::size_t i = 0; i < bench.b.size(); ++i) bench.b[i] = static_cast<float>(i);
  auto sums = bench.sums();
  bench.replica->average(sums, 4, sums);
  bench.replica->update(0, sums);
  const Snapshot snapshot = bench.replica->snapshot(3, 1);
  EXPECT_EQ(snapshot.epoch, 3);
  EXPECT_EQ(snapshot.version, 1);
  ASSERT_EQ(snapshot.chunks.size(), bench.placement.chunks.size());
  Bench other;
  for (const Snapshot::ChunkCopy& chunk : snapshot.chunks)
    other.replica->load(chunk.chunk, *chunk.weights, chunk.slots.arrays());
  const auto want = bench.replica->arrays();
  const auto got = other.replica->arrays();
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_TRUE(std::equal(want[i].begin(), want[i].end(), got[i].begin(), got[i].end())) << i;
}

}  // namespace
}  // namespace trainyard::runtime::ring
