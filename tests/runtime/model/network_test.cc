// The network of network.h: layers of vgg19's kind, sizes of batches that change, bits.
#include "runtime/model/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/core/rng.h"
#include "runtime/catalog/catalog.h"
#include "runtime/model/layer_specs.h"
#include "runtime/model/model.h"
#include "tests/runtime/model/reference_network.h"

namespace trainyard::runtime {
namespace {

constexpr std::uint64_t kSeed = 21;
using Kind = LayerSpec::Kind;
using Gradients = std::vector<std::vector<float>>;

struct Described {
  reference::Network network;
  std::array<int, 3> input;
  int classes;
};

// vgg19's layers, few and narrow; the pools leave out a row and a column.
Described smallVgg(double dropout = 0.5) {
  return {{{{Kind::kConv, 0, 1},
            {Kind::kConv, 2, 3},
            {Kind::kPool},
            {Kind::kConv, 4, 5},
            {Kind::kPool},
            {Kind::kDense, 6, 7, true, dropout},
            {Kind::kDense, 8, 9, false, 0}},
           {{3, 3, 3, 8},
            {8},
            {3, 3, 8, 12},
            {12},
            {3, 3, 12, 16},
            {16},
            {3 * 2 * 16, 24},
            {24},
            {24, 5},
            {5}},
           kSeed},
          {13, 10, 3},
          5};
}

// As the catalogue's mnist_cnn, narrower.
Described smallCnn() {
  return {{{{Kind::kConvPool, 0, 1},
            {Kind::kConvPool, 2, 3},
            {Kind::kDense, 4, 5, true, 0.5},
            {Kind::kDense, 6, 7, false, 0}},
           {{5, 5, 1, 16}, {16}, {5, 5, 16, 24}, {24}, {3 * 3 * 24, 40}, {40}, {40, 10}, {10}},
           kSeed},
          {11, 12, 1},
          10};
}

std::unique_ptr<Network> networkOf(const Described& described) {
  auto network =
      makeNetwork(described.network.shapes, described.network.layers, described.network.seed);
  Rng rng(kSeed);
  for (std::size_t p = 0; p < described.network.shapes.size(); ++p)
    for (float& w : network->parameter(static_cast<int>(p)))
      w = static_cast<float>(0.4 * rng.unit() - 0.2);
  return network;
}

Batch makeBatch(const Described& described, int size, std::uint64_t seed = 3) {
  Batch batch;
  batch.shape = described.input;
  Rng rng(seed);
  for (int i = 0; i < size * batch.shape[0] * batch.shape[1] * batch.shape[2]; ++i)
    batch.images.push_back(static_cast<float>(rng.unit()));
  for (int n = 0; n < size; ++n) {
    batch.labels.push_back(
        static_cast<std::int64_t>(rng.below(static_cast<unsigned>(described.classes))));
    batch.keys.push_back(1000 + 17 * n);
  }
  return batch;
}

Samples samplesOf(const Batch& batch) {
  return {batch.shape, batch.images.data(), batch.labels, batch.keys};
}

struct Step {
  double loss = 0;
  Gradients gradients;
  bool operator==(const Step&) const = default;
};

Step stepOf(Network& network, const Described& described, const Batch& batch) {
  Step step;
  step.gradients.resize(described.network.shapes.size());
  const auto sink = [&](int p, std::span<const float> values, const auto&...) {
    step.gradients[static_cast<std::size_t>(p)].assign(values.begin(), values.end());
  };
  step.loss = network.forwardBackward(samplesOf(batch), sink).loss;
  return step;
}

std::vector<reference::Values> weightsOf(Network& network, std::size_t count) {
  std::vector<reference::Values> weights;
  for (std::size_t p = 0; p < count; ++p) {
    const auto span = network.parameter(static_cast<int>(p));
    weights.emplace_back(span.begin(), span.end());
  }
  return weights;
}

TEST(SmallVgg, EvaluationGivesTheReferencesLossAndHits) {
  const Described vgg = smallVgg();
  const auto network = networkOf(vgg);
  const Batch batch = makeBatch(vgg, 31);
  const auto weights = weightsOf(*network, vgg.network.shapes.size());
  const reference::Score expected = reference::score(vgg.network, weights, batch, false);
  const LossSum found = network->evaluate(samplesOf(batch));
  EXPECT_NEAR(found.loss, expected.loss, 1e-5 * expected.loss);
  EXPECT_EQ(found.hits, expected.hits);
}

// The slope of the reference's loss when one parameter moves in a random direction.
double slopeAlong(const Described& described, std::vector<reference::Values> weights,
                  std::size_t parameter, const reference::Values& direction, const Batch& batch) {
  constexpr double kMove = 1e-6;
  const auto lossAt = [&](double move) {
    for (std::size_t i = 0; i < direction.size(); ++i) weights[parameter][i] += move * direction[i];
    return reference::score(described.network, weights, batch, true).loss;
  };
  const double up = lossAt(kMove);
  return (up - lossAt(-2 * kMove)) / (2 * kMove);
}

void expectSlopes(const Described& described, const Batch& batch,
                  const std::vector<std::size_t>& parameters) {
  const auto network = networkOf(described);
  const Step step = stepOf(*network, described, batch);
  const auto weights = weightsOf(*network, described.network.shapes.size());
  for (const std::size_t p : parameters) {
    Rng rng(100 + p);
    reference::Values direction;
    double ours = 0, size = 0;
    for (const float g : step.gradients[p]) {
      direction.push_back(2 * rng.unit() - 1);
      ours += direction.back() * g;
      size += static_cast<double>(g) * g;
    }
    size = std::sqrt(size);
    EXPECT_GT(size, 1e-4) << p << ": the test sees no gradient at all";
    EXPECT_NEAR(ours, slopeAlong(described, weights, p, direction, batch), 2e-4 * size) << p;
  }
}

TEST(SmallVgg, GradientsAreTheSlopesOfTheReference) {
  expectSlopes(smallVgg(), makeBatch(smallVgg(), 9), {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
}
TEST(SmallCnn, GradientsAreTheSlopesOfTheReference) {
  expectSlopes(smallCnn(), makeBatch(smallCnn(), 9), {0, 1, 2, 3, 4, 5, 6, 7});
}

Described vgg19() {
  v1::ModelSpec spec;
  spec.set_name("vgg19");
  Described described{{{}, {}, kSeed}, {33, 32, 3}, 7};
  std::vector<Variable> variables = *catalogVariables(spec, described.input, described.classes);
  std::erase_if(variables, [](const Variable& v) { return !v.trainable; });
  described.network.layers = layersOf(spec, variables);
  for (const Variable& v : variables) described.network.shapes.push_back(v.shape);
  return described;
}

TEST(Vgg19, GivesTheReferencesLoss) {
  const Described vgg = vgg19();
  const auto network = makeNetwork(vgg.network.shapes, vgg.network.layers, kSeed);
  Rng rng(1);
  for (std::size_t p = 0; p < vgg.network.shapes.size(); ++p) {
    const auto values = network->parameter(static_cast<int>(p));
    const auto outputs = static_cast<double>(vgg.network.shapes[p].back());
    const double inputs = static_cast<double>(values.size()) / outputs;
    const double range = inputs > 1 ? std::sqrt(6 / inputs) : 0.1;
    for (float& w : values) w = static_cast<float>(range * (2 * rng.unit() - 1));
  }
  const Batch batch = makeBatch(vgg, 1);
  const auto weights = weightsOf(*network, vgg.network.shapes.size());
  const reference::Score expected = reference::score(vgg.network, weights, batch, false);
  EXPECT_NEAR(network->evaluate(samplesOf(batch)).loss, expected.loss, 1e-4 * expected.loss);
  std::vector<int> order;
  network->forwardBackward(samplesOf(batch), [&](int p, const auto&...) { order.push_back(p); });
  std::vector<int> last_first;
  for (int layer = 18; layer >= 0; --layer) {
    last_first.push_back(2 * layer + 1);
    last_first.push_back(2 * layer);
  }
  EXPECT_EQ(order, last_first);
}

class Networks : public testing::TestWithParam<Described (*)()> {
 protected:
  void SetUp() override { setComputeThreads(1); }
  void TearDown() override { setComputeThreads(1); }
};
INSTANTIATE_TEST_SUITE_P(Networks, Networks,
                         testing::Values([] { return smallVgg(); }, [] { return smallCnn(); }),
                         [](const auto& info) { return info.index == 0 ? "vgg" : "cnn"; });

// More sizes than there are primitives kept for, some of them again: whatever came before, a batch
// gives the bits that a new network gives.
TEST_P(Networks, SizesOfBatchesChangeAndLeaveNothingBehind) {
  const Described described = GetParam()();
  const auto used = networkOf(described);
  for (const int size : {1, 2, 31, 128, 31, 5, 7, 64, 1, 128, 2}) {
    const Batch batch = makeBatch(described, size, static_cast<std::uint64_t>(size));
    const auto fresh = networkOf(described);
    ASSERT_EQ(stepOf(*used, described, batch), stepOf(*fresh, described, batch)) << size;
    const LossSum ours = used->evaluate(samplesOf(batch));
    const LossSum theirs = fresh->evaluate(samplesOf(batch));
    EXPECT_EQ(ours.loss, theirs.loss) << size;
    EXPECT_EQ(ours.hits, theirs.hits) << size;
  }
}

TEST_P(Networks, ABatchesGradientIsTheSumOfItsSamples) {
  const Described described = GetParam()();
  const auto network = networkOf(described);
  for (const int size : {2, 31}) {
    const Batch batch = makeBatch(described, size);
    const Step whole = stepOf(*network, described, batch);
    const std::size_t values = batch.images.size() / batch.labels.size();
    std::vector<reference::Values> sum;
    for (const auto& g : whole.gradients) sum.emplace_back(g.size(), 0.0);
    for (int n = 0; n < size; ++n) {
      Batch one{batch};
      one.images.assign(batch.images.begin() + n * values, batch.images.begin() + (n + 1) * values);
      one.labels = {batch.labels[n]};
      one.keys = {batch.keys[n]};
      const Step step = stepOf(*network, described, one);
      for (std::size_t p = 0; p < sum.size(); ++p)
        for (std::size_t i = 0; i < sum[p].size(); ++i) sum[p][i] += step.gradients[p][i];
    }
    for (std::size_t p = 0; p < sum.size(); ++p)
      for (std::size_t i = 0; i < sum[p].size(); ++i)
        ASSERT_NEAR(sum[p][i], whole.gradients[p][i], 1e-4) << size << " " << p << " " << i;
  }
}

TEST_P(Networks, AnyThreadGivesTheSameBits) {
  const Described described = GetParam()();
  const Batch batch = makeBatch(described, 31);
  const auto network = networkOf(described);
  const Step here = stepOf(*network, described, batch);
  Step there;
  std::thread([&] { there = stepOf(*network, described, batch); }).join();
  EXPECT_EQ(here, there);
}

// What a deterministic job with more threads rests on.
TEST_P(Networks, TwoThreadsGiveTheSameBitsEachTime) {
  const Described described = GetParam()();
  setComputeThreads(2);
  const Batch batch = makeBatch(described, 31);
  const auto network = networkOf(described);
  const Step first = stepOf(*network, described, batch);
  for (int i = 0; i < 20; ++i) {
    const auto again = networkOf(described);
    ASSERT_EQ(stepOf(*again, described, batch), first) << i;
  }
}

// The next version of a variable may be there before the pass has ended.
TEST_P(Networks, WeightsMayBeOverwrittenWhenTheirGradientIsThere) {
  const Described described = GetParam()();
  const Batch batch = makeBatch(described, 7);
  const auto network = networkOf(described);
  const Step undisturbed = stepOf(*network, described, batch);
  Gradients gradients(described.network.shapes.size());
  network->forwardBackward(
      samplesOf(batch), [&](int p, std::span<const float> values, const auto&...) {
        gradients[static_cast<std::size_t>(p)].assign(values.begin(), values.end());
        for (float& w : network->parameter(p)) w = 1e30f;
      });
  EXPECT_EQ(gradients, undisturbed.gradients);
}

TEST_P(Networks, ABrokenWeightShowsInTheLoss) {
  const Described described = GetParam()();
  const Batch batch = makeBatch(described, 7);
  for (std::size_t p = 0; p < described.network.shapes.size(); ++p) {
    const auto network = networkOf(described);
    for (float& w : network->parameter(static_cast<int>(p)))
      w = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(stepOf(*network, described, batch).loss)) << p;
    EXPECT_TRUE(std::isnan(network->evaluate(samplesOf(batch)).loss)) << p;
  }
}

}  // namespace
}  // namespace trainyard::runtime
