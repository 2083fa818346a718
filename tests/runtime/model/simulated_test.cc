#include "runtime/model/simulated.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "runtime/catalog/catalog.h"

namespace trainyard::runtime {
namespace {

constexpr double kThird = 1.0 / 3;

v1::ModelSpec specOf(const std::string& name, double step_seconds) {
  v1::ModelSpec spec;
  spec.set_name(name);
  if (name == "mlp") spec.add_hidden(6);
  spec.set_simulated_step_seconds(step_seconds);
  return spec;
}

std::vector<Variable> trainable(const v1::ModelSpec& spec, std::array<int, 3> shape, int classes) {
  auto variables = *catalogVariables(spec, shape, classes);
  std::erase_if(variables, [](const Variable& v) { return !v.trainable; });
  return variables;
}

double momentOf(const std::vector<GradientMoment>& moments, const std::vector<Variable>& variables,
                const std::string& name) {
  for (const GradientMoment& m : moments) {
    if (variables[m.variable].name == name) return m.at;
  }
  ADD_FAILURE() << "no moment for " << name;
  return -1;
}

Batch batchOf(std::vector<std::int64_t> labels) {
  Batch batch;
  batch.shape = {2, 2, 1};
  batch.images.resize(4 * labels.size());
  batch.keys.resize(labels.size());
  batch.labels = std::move(labels);
  return batch;
}

TEST(BackwardMoments, EveryVariableOnceFromTheLastLayerToTheFirst) {
  for (const std::string name : {"mnist_cnn", "mlp", "vgg19"}) {
    const v1::ModelSpec spec = specOf(name, 1);
    const auto variables = trainable(spec, {224, 224, 3}, 1000);
    const auto moments = backwardMoments(spec, variables, {224, 224, 3});
    ASSERT_EQ(moments.size(), variables.size());
    const int last_layer = static_cast<int>(variables.size()) / 2 - 1;
    double before = kThird;
    for (std::size_t i = 0; i < moments.size(); ++i) {
      const int layer = last_layer - static_cast<int>(i / 2);
      EXPECT_EQ(moments[i].variable, 2 * layer + (i % 2 == 0 ? 1 : 0)) << "bias, then kernel";
      EXPECT_GE(moments[i].at, before);
      before = moments[i].at;
    }
    EXPECT_DOUBLE_EQ(moments.front().at, kThird);
    EXPECT_EQ(moments.back().at, 1);
  }
}

// 28x28: conv1 works on 28x28, conv2 on 14x14 positions, the dense layers on one.
TEST(BackwardMoments, LayersTakeTheirShareOfTheMultiplyAdds) {
  const v1::ModelSpec spec = specOf("mnist_cnn", 1);
  const auto variables = trainable(spec, {28, 28, 1}, 10);
  const auto moments = backwardMoments(spec, variables, {28, 28, 1});
  const double fc2 = 2.0 * 1024 * 10;
  const double fc1 = 2.0 * 3136 * 1024;
  const double conv2 = 2.0 * 14 * 14 * 5 * 5 * 32 * 64;
  const double conv1 = 28.0 * 28 * 5 * 5 * 32;
  const double all = fc2 + fc1 + conv2 + conv1;
  const auto at = [&](const std::string& name) { return momentOf(moments, variables, name); };
  EXPECT_NEAR(at("fc2_wei"), kThird + 2 * kThird * fc2 / all, 1e-12);
  EXPECT_NEAR(at("fc1_bia"), at("fc2_wei"), 1e-12);
  EXPECT_NEAR(at("fc1_wei"), kThird + 2 * kThird * (fc2 + fc1) / all, 1e-12);
  EXPECT_NEAR(at("conv2_wei"), kThird + 2 * kThird * (fc2 + fc1 + conv2) / all, 1e-12);
  EXPECT_EQ(at("conv1_wei"), 1);
}

TEST(BackwardMoments, Vgg19HalvesThePictureBetweenItsBlocks) {
  const v1::ModelSpec spec = specOf("vgg19", 1);
  const auto variables = trainable(spec, {224, 224, 3}, 1000);
  const auto moments = backwardMoments(spec, variables, {224, 224, 3});
  const auto at = [&](const std::string& name) { return momentOf(moments, variables, name); };
  const double conv5 = at("conv5_4_wei") - at("conv5_4_bia");
  EXPECT_NEAR((at("conv4_4_wei") - at("conv4_4_bia")) / conv5, 4, 1e-9) << "28x28 to 14x14";
  EXPECT_NEAR((at("conv2_2_wei") - at("conv2_2_bia")) / conv5, 4, 1e-9) << "64 x 1/16 kernels";
  // fc6 is 0.7 of the parameters, but computed once a sample.
  EXPECT_LT(at("fc6_wei"), kThird + 0.02);
}

// A clock that only the waits move, and a sink that takes long for each gradient.
TEST(SimulatedModel, AStepTakesItsTimeWhateverTheSinkTakes) {
  TimePoint now{};
  const StepTimer timer{std::chrono::milliseconds(300), [&] { return now; },
                        [&](TimePoint at) { now = std::max(now, at); }};
  const v1::ModelSpec spec = specOf("mlp", 0.3);
  const auto variables = trainable(spec, {2, 2, 1}, 3);
  const auto moments = backwardMoments(spec, variables, {2, 2, 1});
  const auto model = makeSimulatedModel(variables, moments, 3, timer);
  for (int step = 1; step <= 3; ++step) {
    const TimePoint start = now;
    std::vector<int> order;
    const auto loss = model->forwardBackward(batchOf({0, 1}), [&](const Gradient& g) {
      EXPECT_GE(toSeconds(now - start), 0.1 - 1e-6) << "the forward pass is a third";
      EXPECT_EQ(g.values.size(), static_cast<std::size_t>(variables[g.variable].elements()));
      for (const float value : g.values) EXPECT_EQ(value, 2 * kSimulatedGradient);
      order.push_back(g.variable);
      now += std::chrono::milliseconds(10);
    });
    ASSERT_TRUE(loss.ok());
    EXPECT_EQ(order, (std::vector<int>{3, 2, 1, 0}));
    EXPECT_NEAR(toSeconds(now - start), 0.31, 1e-6) << "its end, and the last gradient's";
    EXPECT_NEAR(loss->loss_sum, 2 * std::log(3.0), 1e-12);
    EXPECT_EQ(loss->samples, 2);
  }
}

// A short last step has other sums, while those of the step before may still be read.
TEST(SimulatedModel, AGradientStaysUnchangedWhileItIsHeld) {
  const StepTimer timer{Duration{}, [] { return TimePoint{}; }, [](TimePoint) {}};
  const v1::ModelSpec spec = specOf("mlp", 1);
  const auto variables = trainable(spec, {2, 2, 1}, 3);
  const auto model =
      makeSimulatedModel(variables, backwardMoments(spec, variables, {2, 2, 1}), 3, timer);
  std::vector<Gradient> held;
  const auto keep = [&](Gradient g) { held.push_back(std::move(g)); };
  ASSERT_TRUE(model->forwardBackward(batchOf({0, 1, 2}), keep).ok());
  ASSERT_TRUE(model->forwardBackward(batchOf({0}), keep).ok());
  ASSERT_EQ(held.size(), 8u);
  for (std::size_t i = 0; i < held.size(); ++i) {
    for (const float value : held[i].values) {
      EXPECT_EQ(value, (i < 4 ? 3 : 1) * kSimulatedGradient);
    }
  }
}

TEST(SimulatedModel, EvaluationAnswersClassZero) {
  const auto model = makeModel(specOf("mlp", 0.5), {2, 2, 1}, 3, 1);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto score = (*model)->evaluate(batchOf({0, 1, 0, 2, 0}));
  ASSERT_TRUE(score.ok());
  EXPECT_EQ(score->samples, 5);
  EXPECT_EQ(score->hits, 3);
  EXPECT_NEAR(score->loss_sum, 5 * std::log(3.0), 1e-12);
}

// By the system's clock: no earlier than said.
TEST(SimulatedModel, MadeForAJobItTakesRealTime) {
  const auto model = makeModel(specOf("vgg19", 0.05), {32, 32, 3}, 10, 1);
  ASSERT_TRUE(model.ok()) << model.status();
  Batch batch;
  batch.shape = {32, 32, 3};
  batch.images.resize(32 * 32 * 3);
  batch.labels = {7};
  batch.keys = {0};
  const TimePoint start = systemClock().now();
  int gradients = 0;
  ASSERT_TRUE((*model)->forwardBackward(batch, [&](const Gradient&) { ++gradients; }).ok());
  EXPECT_GE(systemClock().now() - start, std::chrono::milliseconds(50));
  EXPECT_EQ(gradients, 38);
}

}  // namespace
}  // namespace trainyard::runtime
