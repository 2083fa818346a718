// Models by LibTorch's operators on a device against those of the processor, whose kernels are
// written by hand: on "cpu" always, on a GPU where one is visible.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/core/rng.h"
#include "runtime/catalog/catalog.h"
#include "runtime/model/device.h"
#include "runtime/model/device_network.h"
#include "runtime/model/model.h"

namespace trainyard::runtime {
namespace {

constexpr std::uint64_t kSeed = 21;
constexpr char kGpu[] = "cuda:0";

// Of the norm of a gradient, or of the loss: float32 sums in another order, through several layers;
// a GPU's convolutions may besides go through a transform.
double toleranceOf(const std::string& device) {
  return device == kGpu ? 2e-4 : 2e-5;
}

using Gradients = std::vector<std::vector<float>>;

double relativeError(const std::vector<float>& ours, const std::vector<float>& theirs) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    difference += std::pow(static_cast<double>(ours[i]) - theirs[i], 2);
    size += std::pow(static_cast<double>(theirs[i]), 2);
  }
  return size > 0 ? std::sqrt(difference / size) : difference;
}

void expectSameGradients(const Gradients& ours, const Gradients& theirs, double tolerance) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t v = 0; v < ours.size(); ++v) {
    ASSERT_EQ(ours[v].size(), theirs[v].size()) << v;
    EXPECT_TRUE(std::any_of(theirs[v].begin(), theirs[v].end(), [](float g) { return g != 0; }))
        << "variable " << v << ": the test sees no gradient at all";
    EXPECT_LT(relativeError(ours[v], theirs[v]), tolerance) << "variable " << v;
  }
}

class OnDevice : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    setComputeThreads(1);
    setGpuArithmetic(true);
    if (device() != kGpu) return;
    const auto gpu = chooseDevice("GPU", gpuSupport(), 0);
    if (!gpu.ok()) GTEST_SKIP() << gpu.status().message();
  }
  std::string device() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Devices, OnDevice, testing::Values("cpu", kGpu), [](const auto& info) {
  return std::string(info.param) == kGpu ? std::string("gpu") : std::string("cpu");
});

v1::ModelSpec specOf(const std::string& name, double dropout, std::vector<int> hidden = {}) {
  v1::ModelSpec spec;
  spec.set_name(name);
  spec.set_dropout(dropout);
  for (const int h : hidden) spec.add_hidden(h);
  return spec;
}

std::unique_ptr<Model> modelOf(const v1::ModelSpec& spec, const std::array<int, 3>& shape,
                               int classes, const std::string& device) {
  auto model = makeModel(spec, shape, classes, kSeed, device);
  EXPECT_TRUE(model.ok()) << model.status();
  for (std::size_t v = 0; v < (*model)->variables().size(); ++v)
    initialise((*model)->variables()[v], kSeed, 0, (*model)->weights(static_cast<int>(v)));
  return *std::move(model);
}

Batch makeBatch(const std::array<int, 3>& shape, int classes, int size, std::uint64_t seed) {
  Batch batch;
  batch.shape = shape;
  Rng rng(seed);
  for (int i = 0; i < size * shape[0] * shape[1] * shape[2]; ++i)
    batch.images.push_back(static_cast<float>(rng.unit()));
  for (int n = 0; n < size; ++n) {
    batch.labels.push_back(static_cast<std::int64_t>(rng.below(static_cast<unsigned>(classes))));
    batch.keys.push_back(static_cast<std::int64_t>(rng.below(1'000'000'000'000)));
  }
  return batch;
}

struct Step {
  double loss = 0;
  Gradients gradients;
  std::vector<int> order;
  std::vector<bool> on_device;  // as the order
};

Step stepOf(Model& model, const Batch& batch) {
  Step step;
  step.gradients.resize(model.variables().size());
  const auto caller = std::this_thread::get_id();
  const auto loss = model.forwardBackward(batch, [&](Gradient g) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    step.order.push_back(g.variable);
    step.on_device.push_back(g.on_device);
    step.gradients[g.variable].assign(g.values.begin(), g.values.end());
  });
  EXPECT_TRUE(loss.ok()) << loss.status();
  if (loss.ok()) step.loss = loss->loss_sum;
  return step;
}

void expectSameModel(const v1::ModelSpec& spec, const std::array<int, 3>& shape, int classes,
                     int samples, const std::string& device) {
  const auto ours = modelOf(spec, shape, classes, device);
  const auto theirs = modelOf(spec, shape, classes, "");
  const Batch batch = makeBatch(shape, classes, samples, 3);
  const double tolerance = toleranceOf(device);
  const Step step = stepOf(*ours, batch);
  const Step expected = stepOf(*theirs, batch);
  EXPECT_NEAR(step.loss, expected.loss, tolerance * expected.loss);
  EXPECT_EQ(step.order, expected.order);
  expectSameGradients(step.gradients, expected.gradients, tolerance);
  const auto score = ours->evaluate(batch);
  const auto expected_score = theirs->evaluate(batch);
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_EQ(score->samples, expected_score->samples);
  EXPECT_EQ(score->hits, expected_score->hits);
  EXPECT_NEAR(score->loss_sum, expected_score->loss_sum, tolerance * expected_score->loss_sum);
}

TEST_P(OnDevice, MnistCnnGivesTheProcessorsLossAndGradients) {
  expectSameModel(specOf("mnist_cnn", 0), {28, 28, 1}, 10, 16, device());
}
TEST_P(OnDevice, DropoutLeavesOutTheSameUnits) {
  expectSameModel(specOf("mnist_cnn", 0.5), {28, 28, 1}, 10, 16, device());
}
TEST_P(OnDevice, OddSidesAreWindowsOfTheirOwn) {
  expectSameModel(specOf("mnist_cnn", 0.4), {7, 5, 3}, 4, 9, device());
}
TEST_P(OnDevice, MlpGivesTheProcessorsLossAndGradients) {
  expectSameModel(specOf("mlp", 0.25, {40, 30}), {6, 5, 1}, 7, 33, device());
}
TEST_P(OnDevice, SoftmaxRegressionGivesTheProcessorsLossAndGradients) {
  expectSameModel(specOf("mlp", 0), {6, 5, 1}, 7, 33, device());
}

// vgg19's layers, few and narrow.
struct SmallVgg {
  using Kind = LayerSpec::Kind;
  std::vector<std::vector<std::int64_t>> shapes = {{3, 3, 3, 8},   {8},  {3, 3, 8, 12},    {12},
                                                   {3, 3, 12, 16}, {16}, {3 * 2 * 16, 24}, {24},
                                                   {24, 5},        {5}};
  std::vector<LayerSpec> layers = {
      {Kind::kConv, 0, 1},           {Kind::kConv, 2, 3}, {Kind::kPool},
      {Kind::kConv, 4, 5},           {Kind::kPool},       {Kind::kDense, 6, 7, true, 0.5},
      {Kind::kDense, 8, 9, false, 0}};
  std::array<int, 3> input{13, 10, 3};  // pools leave out a row and a column

  void fill(Network& network) const {
    Rng rng(kSeed);
    for (std::size_t p = 0; p < shapes.size(); ++p)
      for (float& w : network.parameter(static_cast<int>(p)))
        w = static_cast<float>(0.4 * rng.unit() - 0.2);
  }
};

struct NetworkStep {
  LossSum loss, evaluation;
  Gradients gradients;
};

NetworkStep stepOf(Network& network, const SmallVgg& vgg, const Batch& batch) {
  vgg.fill(network);
  const Samples samples{vgg.input, batch.images.data(), batch.labels, batch.keys};
  NetworkStep step;
  step.gradients.resize(vgg.shapes.size());
  step.loss =
      network.forwardBackward(samples, [&](int p, std::span<const float> values, const auto&...) {
        step.gradients[static_cast<std::size_t>(p)].assign(values.begin(), values.end());
      });
  step.evaluation = network.evaluate(samples);
  return step;
}

TEST_P(OnDevice, ASmallVggGivesTheProcessorsLossAndGradients) {
  const SmallVgg vgg;
  const Batch batch = makeBatch(vgg.input, 5, 12, 8);
  const NetworkStep ours =
      stepOf(*makeDeviceNetwork(vgg.shapes, vgg.layers, kSeed, device()), vgg, batch);
  const NetworkStep theirs = stepOf(*makeNetwork(vgg.shapes, vgg.layers, kSeed), vgg, batch);
  const double tolerance = toleranceOf(device());
  EXPECT_NEAR(ours.loss.loss, theirs.loss.loss, tolerance * theirs.loss.loss);
  EXPECT_EQ(ours.loss.hits, theirs.loss.hits);
  EXPECT_NEAR(ours.evaluation.loss, theirs.evaluation.loss, tolerance * theirs.evaluation.loss);
  EXPECT_EQ(ours.evaluation.hits, theirs.evaluation.hits);
  expectSameGradients(ours.gradients, theirs.gradients, tolerance);
}

// The next version of a variable may be there before the pass has ended.
TEST_P(OnDevice, WeightsMayBeOverwrittenWhenTheirGradientIsThere) {
  const std::array<int, 3> shape{8, 8, 1};
  const auto model = modelOf(specOf("mnist_cnn", 0), shape, 10, device());
  const Batch batch = makeBatch(shape, 10, 8, 4);
  const Step undisturbed = stepOf(*model, batch);
  Gradients gradients(model->variables().size());
  const auto loss = model->forwardBackward(batch, [&](Gradient g) {
    gradients[g.variable].assign(g.values.begin(), g.values.end());
    for (float& w : model->weights(g.variable)) w = 0;
  });
  ASSERT_TRUE(loss.ok()) << loss.status();
  EXPECT_NEAR(loss->loss_sum, undisturbed.loss, toleranceOf(device()) * undisturbed.loss);
  expectSameGradients(gradients, undisturbed.gradients, toleranceOf(device()));
  // The next pass computes with what was written.
  EXPECT_NEAR(stepOf(*model, batch).loss, 8 * std::log(10.0), 1e-5);
}

// Of the device "cpu": the host can look at what it has.
TEST(DeviceModel, GradientsStayOnTheDeviceWhereTheyAreWanted) {
  setComputeThreads(1);
  const std::array<int, 3> shape{8, 8, 1};
  const auto model = modelOf(specOf("mnist_cnn", 0.5), shape, 10, "cpu");
  const Batch batch = makeBatch(shape, 10, 8, 4);
  const Step to_host = stepOf(*model, batch);
  ASSERT_TRUE(model->deliverOnDevice(true));
  const Step on_device = stepOf(*model, batch);
  ASSERT_TRUE(model->deliverOnDevice(false));
  const Step to_host_again = stepOf(*model, batch);
  EXPECT_EQ(on_device.on_device, std::vector<bool>(model->variables().size(), true));
  EXPECT_EQ(to_host.on_device, std::vector<bool>(model->variables().size(), false));
  EXPECT_EQ(to_host_again.on_device, to_host.on_device);
  EXPECT_EQ(on_device.order, to_host.order);
  EXPECT_EQ(on_device.gradients, to_host.gradients);
  EXPECT_EQ(on_device.loss, to_host.loss);
}

TEST(DeviceModel, AModelOnTheProcessorHasNoDevice) {
  const auto model = modelOf(specOf("mnist_cnn", 0), {8, 8, 1}, 10, "");
  EXPECT_FALSE(model->deliverOnDevice(true));
  EXPECT_TRUE(model->deliverOnDevice(false));
  const Step step = stepOf(*model, makeBatch({8, 8, 1}, 10, 4, 3));
  EXPECT_EQ(step.on_device, std::vector<bool>(model->variables().size(), false));
}

TEST_P(OnDevice, AHeldGradientSurvivesLaterSteps) {
  const std::array<int, 3> shape{8, 8, 1};
  const auto model = modelOf(specOf("mnist_cnn", 0.5), shape, 10, device());
  std::vector<Gradient> held;
  Gradients copies;
  ASSERT_TRUE(model
                  ->forwardBackward(makeBatch(shape, 10, 4, 3),
                                    [&](Gradient g) {
                                      copies.emplace_back(g.values.begin(), g.values.end());
                                      held.push_back(std::move(g));
                                    })
                  .ok());
  for (int i = 0; i < 3; ++i) stepOf(*model, makeBatch(shape, 10, 4, 50 + i));
  for (std::size_t i = 0; i < held.size(); ++i)
    EXPECT_TRUE(std::equal(copies[i].begin(), copies[i].end(), held[i].values.begin())) << i;
}

TEST_P(OnDevice, TheSameStepGivesTheSameBits) {
  const std::array<int, 3> shape{28, 28, 1};
  const auto model = modelOf(specOf("mnist_cnn", 0.5), shape, 10, device());
  const Batch batch = makeBatch(shape, 10, 16, 4);
  const Step first = stepOf(*model, batch);
  stepOf(*model, makeBatch(shape, 10, 5, 5));
  const Step later = stepOf(*model, batch);
  EXPECT_EQ(first.loss, later.loss);
  EXPECT_EQ(first.gradients, later.gradients);
}

TEST_P(OnDevice, ABrokenWeightShowsInTheLoss) {
  for (const int variable : {0, 2, 4, 7}) {
    const auto model = modelOf(specOf("mnist_cnn", 0), {8, 8, 1}, 10, device());
    model->weights(variable)[0] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(stepOf(*model, makeBatch({8, 8, 1}, 10, 4, 3)).loss)) << variable;
  }
}

}  // namespace
}  // namespace trainyard::runtime
