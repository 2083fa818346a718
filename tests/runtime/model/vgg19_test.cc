// vgg19's pass against LibTorch's autograd on small pictures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/core/rng.h"
#include "runtime/catalog/catalog.h"
#include "runtime/model/model.h"
#include "tests/runtime/model/autograd_vgg19.h"
#include "tests/runtime/model/reference_network.h"

namespace trainyard::runtime {
namespace {

constexpr std::uint64_t kSeed = 5;
constexpr int kClasses = 7;
// Neither side is a multiple of 32: the pools leave out odd rows and columns.
constexpr std::array<int, 3> kShape{36, 33, 3};
constexpr double kDropout = 0.5;
constexpr int kFc6 = 16 + 5;  // its number among all layers: 16 convolutions, 5 pools before it
constexpr std::int64_t kUnits = 4096;

// Weights of the catalogue's deviation, uniform because that is quickly drawn; biases too, as zeros
// would hide where they are added.
std::unique_ptr<Model> makeVgg19() {
  v1::ModelSpec spec;
  spec.set_name("vgg19");
  spec.set_dropout(kDropout);
  auto model = makeModel(spec, kShape, kClasses, kSeed);
  EXPECT_TRUE(model.ok()) << model.status();
  Rng rng(kSeed);
  for (std::size_t v = 0; v < (*model)->variables().size(); ++v) {
    const Variable& variable = (*model)->variables()[v];
    const bool bias = variable.shape.size() == 1;
    const double range = bias ? 0.1 : std::sqrt(3.0) * variable.initializer.value;
    for (float& weight : (*model)->weights(static_cast<int>(v)))
      weight = static_cast<float>(range * (2 * rng.unit() - 1));
  }
  return *std::move(model);
}

Batch makeBatch(int size) {
  Batch batch;
  batch.shape = kShape;
  Rng rng(3);
  for (int i = 0; i < size * kShape[0] * kShape[1] * kShape[2]; ++i)
    batch.images.push_back(static_cast<float>(rng.unit()));
  for (int n = 0; n < size; ++n) {
    batch.labels.push_back(static_cast<std::int64_t>(rng.below(kClasses)));
    batch.keys.push_back(1000 + 17 * n);
  }
  return batch;
}

reference::Vgg19Batch referenceBatch(const Batch& batch, double dropout) {
  reference::Vgg19Batch result{batch.shape, batch.images, batch.labels, {}};
  if (dropout == 0) return result;
  for (int layer = 0; layer < 2; ++layer) {
    for (const std::int64_t key : batch.keys) {
      reference::Values mask(kUnits, 1.0);
      reference::activate(mask, dropout, kSeed, kFc6 + layer, key);
      result.masks[layer].insert(result.masks[layer].end(), mask.begin(), mask.end());
    }
  }
  return result;
}

// Gradients only where there is dropout, which is for training.
reference::Vgg19Pass expected(Model& model, const Batch& batch, double dropout) {
  std::vector<std::vector<float>> weights;
  std::vector<std::vector<std::int64_t>> shapes;
  for (std::size_t v = 0; v < model.variables().size(); ++v) {
    const auto span = model.weights(static_cast<int>(v));
    weights.emplace_back(span.begin(), span.end());
    shapes.push_back(model.variables()[v].shape);
  }
  return reference::vgg19Pass(weights, shapes, referenceBatch(batch, dropout), dropout > 0);
}

// The largest difference in units of the largest slope of the variable.
double relativeError(std::span<const float> ours, const std::vector<double>& theirs) {
  double largest = 0;
  double difference = 0;
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    largest = std::max(largest, std::fabs(theirs[i]));
    difference = std::max(difference, std::fabs(static_cast<double>(ours[i]) - theirs[i]));
  }
  return largest > 0 ? difference / largest : 1;
}

TEST(Vgg19, GradientsAreThoseOfAutogradAndLeaveLastLayerFirst) {
  setComputeThreads(1);
  const auto model = makeVgg19();
  const Batch batch = makeBatch(2);
  const reference::Vgg19Pass pass = expected(*model, batch, kDropout);
  ASSERT_EQ(pass.gradients.size(), model->variables().size());
  std::vector<int> order;
  const auto loss = model->forwardBackward(batch, [&](Gradient g) {
    order.push_back(g.variable);
    const auto& theirs = pass.gradients[static_cast<std::size_t>(g.variable)];
    ASSERT_EQ(g.values.size(), theirs.size());
    EXPECT_LT(relativeError(g.values, theirs), 1e-3) << model->variables()[g.variable].name;
  });
  ASSERT_TRUE(loss.ok()) << loss.status();
  EXPECT_NEAR(loss->loss_sum, pass.loss, 1e-4 * pass.loss);
  std::vector<int> expected_order;
  for (int layer = 18; layer >= 0; --layer) {
    expected_order.push_back(2 * layer + 1);
    expected_order.push_back(2 * layer);
  }
  EXPECT_EQ(order, expected_order);
}

TEST(Vgg19, EvaluatesWithoutDropout) {
  setComputeThreads(1);
  const auto model = makeVgg19();
  const Batch batch = makeBatch(3);
  const reference::Vgg19Pass pass = expected(*model, batch, 0);
  const auto score = model->evaluate(batch);
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_NEAR(score->loss_sum, pass.loss, 1e-4 * pass.loss);
  EXPECT_EQ(score->hits, pass.hits);
  EXPECT_EQ(score->samples, 3);
}

}  // namespace
}  // namespace trainyard::runtime
