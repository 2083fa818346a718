#include "runtime/model/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "base/core/rng.h"
#include "runtime/catalog/catalog.h"
#include "runtime/model/layer_specs.h"
#include "tests/runtime/model/reference_network.h"
#include "tests/runtime/model/remembered_blocks.h"

namespace trainyard::runtime {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kSeed = 21;

v1::ModelSpec specOf(const std::string& name, double dropout, std::vector<int> hidden = {}) {
  v1::ModelSpec spec;
  spec.set_name(name);
  spec.set_dropout(dropout);
  for (const int h : hidden) spec.add_hidden(h);
  return spec;
}

std::unique_ptr<Model> modelOf(const v1::ModelSpec& spec, const std::array<int, 3>& shape,
                               int classes) {
  auto model = makeModel(spec, shape, classes, kSeed);
  EXPECT_TRUE(model.ok()) << model.status();
  for (std::size_t i = 0; i < (*model)->variables().size(); ++i) {
    initialise((*model)->variables()[i], kSeed, 0, (*model)->weights(static_cast<int>(i)));
  }
  return *std::move(model);
}

// Each class has a pattern of its own under noise, so that a model can learn it.
Batch makeBatch(const std::array<int, 3>& shape, int classes, int size, std::uint64_t seed) {
  Batch batch;
  batch.shape = shape;
  const int values = shape[0] * shape[1] * shape[2];
  Rng rng(seed);
  for (int n = 0; n < size; ++n) {
    const auto label = static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(classes)));
    Rng pattern(900 + static_cast<std::uint64_t>(label));
    for (int i = 0; i < values; ++i) {
      batch.images.push_back(static_cast<float>(0.6 * pattern.unit() + 0.4 * rng.unit()));
    }
    batch.labels.push_back(label);
    batch.keys.push_back(static_cast<std::int64_t>(rng.below(1'000'000'000'000)));
  }
  return batch;
}

Batch sampleOf(const Batch& batch, int n) {
  const std::size_t values = batch.images.size() / batch.labels.size();
  Batch one;
  one.shape = batch.shape;
  one.images.assign(batch.images.begin() + n * values, batch.images.begin() + (n + 1) * values);
  one.labels = {batch.labels[n]};
  one.keys = {batch.keys[n]};
  return one;
}

struct Step {
  double loss = 0;
  std::int64_t hits = 0;
  std::vector<std::vector<float>> gradients;
};

Step stepOf(Model& model, const Batch& batch) {
  Step step;
  step.gradients.resize(model.variables().size());
  const auto loss = model.forwardBackward(batch, [&](Gradient g) {
    step.gradients[g.variable].assign(g.values.begin(), g.values.end());
  });
  EXPECT_TRUE(loss.ok()) << loss.status();
  step.loss = loss->loss_sum;
  step.hits = loss->hits;
  EXPECT_EQ(loss->samples, batch.size());
  return step;
}

std::vector<reference::Values> weightsOf(Model& model) {
  std::vector<reference::Values> weights;
  for (std::size_t i = 0; i < model.variables().size(); ++i) {
    const auto span = model.weights(static_cast<int>(i));
    weights.emplace_back(span.begin(), span.end());
  }
  return weights;
}

reference::Network referenceOf(const v1::ModelSpec& spec, const Model& model) {
  reference::Network network{layersOf(spec, model.variables()), {}, kSeed};
  for (const Variable& v : model.variables()) network.shapes.push_back(v.shape);
  return network;
}

struct Case {
  const char* label;
  v1::ModelSpec spec;
  std::array<int, 3> shape;
  int classes;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.label;
}

class AgainstReference : public testing::TestWithParam<Case> {};

TEST_P(AgainstReference, EvaluationGivesTheSameLossAndHits) {
  const Case& c = GetParam();
  const auto model = modelOf(c.spec, c.shape, c.classes);
  const Batch batch = makeBatch(c.shape, c.classes, 9, 1);
  const auto expected =
      reference::score(referenceOf(c.spec, *model), weightsOf(*model), batch, false);
  const auto score = model->evaluate(batch);
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_NEAR(score->loss_sum, expected.loss, 1e-5 * expected.loss);
  EXPECT_EQ(score->hits, expected.hits);
  EXPECT_EQ(score->samples, 9);
}

// Central differences of the double-precision reference, so that a difference is an error of the
// backward pass and not of rounding.
TEST_P(AgainstReference, GradientsAreTheSlopesOfTheSummedLoss) {
  const Case& c = GetParam();
  const auto model = modelOf(c.spec, c.shape, c.classes);
  const Batch batch = makeBatch(c.shape, c.classes, 3, 2);
  const Step step = stepOf(*model, batch);
  auto weights = weightsOf(*model);
  const reference::Network network = referenceOf(c.spec, *model);
  const auto lossNow = [&] { return reference::score(network, weights, batch, true).loss; };
  EXPECT_NEAR(step.loss, lossNow(), 1e-5 * lossNow());
  EXPECT_EQ(step.hits, reference::score(network, weights, batch, true).hits);
  for (std::size_t v = 0; v < weights.size(); ++v) {
    ASSERT_EQ(step.gradients[v].size(), weights[v].size());
    Rng pick(v);
    double largest = 0;
    for (int draw = 0; draw < 12; ++draw) {
      const std::size_t i = pick.below(weights[v].size());
      const double before = weights[v][i];
      constexpr double kMove = 1e-6;
      weights[v][i] = before + kMove;
      const double up = lossNow();
      weights[v][i] = before - kMove;
      const double slope = (up - lossNow()) / (2 * kMove);
      weights[v][i] = before;
      largest = std::max(largest, std::fabs(slope));
      EXPECT_NEAR(step.gradients[v][i], slope, 1e-4 * std::fabs(slope) + 2e-5)
          << model->variables()[v].name << "[" << i << "]";
    }
    EXPECT_GT(largest, 1e-4) << model->variables()[v].name << ": the test sees no gradient at all";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, AgainstReference,
    testing::Values(Case{"cnn", specOf("mnist_cnn", 0), {6, 4, 1}, 5},
                    Case{"cnnOddSizeThreeChannelsDropout", specOf("mnist_cnn", 0.4), {5, 3, 3}, 3},
                    Case{"mlp", specOf("mlp", 0, {7, 6}), {3, 2, 2}, 4},
                    Case{"mlpDropout", specOf("mlp", 0.25, {40, 30}), {3, 3, 1}, 4},
                    Case{"softmaxRegression", specOf("mlp", 0), {4, 4, 1}, 3}),
    [](const auto& info) { return std::string(info.param.label); });

TEST(Model, ListsTheCataloguesTrainableVariables) {
  const auto model = modelOf(specOf("mnist_cnn", 0.5), {28, 28, 1}, 10);
  const auto catalog = *catalogVariables(specOf("mnist_cnn", 0.5), {28, 28, 1}, 10);
  ASSERT_EQ(model->variables().size() + 1, catalog.size());
  for (std::size_t i = 0; i < model->variables().size(); ++i) {
    EXPECT_EQ(model->variables()[i].name, catalog[i + 1].name);
    EXPECT_EQ(model->variables()[i].shape, catalog[i + 1].shape);
    EXPECT_EQ(static_cast<std::int64_t>(model->weights(static_cast<int>(i)).size()),
              catalog[i + 1].elements());
  }
}

TEST(Model, DeliversEachGradientOnceOnTheCallersThreadLastLayerFirst) {
  const auto model = modelOf(specOf("mnist_cnn", 0), {8, 8, 1}, 10);
  const auto caller = std::this_thread::get_id();
  std::vector<std::string> order;
  const auto loss = model->forwardBackward(makeBatch({8, 8, 1}, 10, 4, 3), [&](Gradient g) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    order.push_back(model->variables()[g.variable].name);
  });
  ASSERT_TRUE(loss.ok());
  EXPECT_THAT(order, testing::ElementsAre("fc2_bia", "fc2_wei", "fc1_bia", "fc1_wei", "conv2_bia",
                                          "conv2_wei", "conv1_bia", "conv1_wei"));
}

TEST(Model, AHeldGradientSurvivesLaterSteps) {
  const auto model = modelOf(specOf("mnist_cnn", 0.5), {8, 8, 1}, 10);
  std::vector<Gradient> held;
  ASSERT_TRUE(
      model->forwardBackward(makeBatch({8, 8, 1}, 10, 4, 3), [&](Gradient g) { held.push_back(g); })
          .ok());
  std::vector<std::vector<float>> copies;
  for (const Gradient& g : held) copies.emplace_back(g.values.begin(), g.values.end());
  for (int i = 0; i < 3; ++i) stepOf(*model, makeBatch({8, 8, 1}, 10, 4, 50 + i));
  for (std::size_t i = 0; i < held.size(); ++i) {
    EXPECT_TRUE(std::equal(copies[i].begin(), copies[i].end(), held[i].values.begin()));
  }
}

TEST(Model, TheSameStepGivesTheSameBits) {
  setComputeThreads(1);
  const Batch batch = makeBatch({28, 28, 1}, 10, 16, 4);
  const auto first = modelOf(specOf("mnist_cnn", 0.5), {28, 28, 1}, 10);
  const Step a = stepOf(*first, batch);
  stepOf(*first, makeBatch({28, 28, 1}, 10, 5, 5));  // other shapes in between leave nothing behind
  const Step b = stepOf(*first, batch);
  const auto second = modelOf(specOf("mnist_cnn", 0.5), {28, 28, 1}, 10);
  const Step c = stepOf(*second, batch);
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.gradients, b.gradients);
  EXPECT_EQ(a.gradients, c.gradients);
}

TEST(Model, ABatchesGradientIsTheSumOfItsSamplesWhateverTheDropout) {
  const auto model = modelOf(specOf("mnist_cnn", 0.5), {8, 8, 1}, 10);
  const Batch batch = makeBatch({8, 8, 1}, 10, 6, 6);
  const Step whole = stepOf(*model, batch);
  std::vector<std::vector<double>> sum;
  double loss = 0;
  for (const auto& g : whole.gradients) sum.emplace_back(g.size(), 0.0);
  for (int n = batch.size() - 1; n >= 0; --n) {
    const Step one = stepOf(*model, sampleOf(batch, n));
    loss += one.loss;
    for (std::size_t v = 0; v < sum.size(); ++v)
      for (std::size_t i = 0; i < sum[v].size(); ++i) sum[v][i] += one.gradients[v][i];
  }
  EXPECT_NEAR(loss, whole.loss, 1e-4);
  for (std::size_t v = 0; v < sum.size(); ++v)
    for (std::size_t i = 0; i < sum[v].size(); ++i)
      ASSERT_NEAR(sum[v][i], whole.gradients[v][i], 1e-4) << v << " " << i;
}

std::ptrdiff_t threadsOfProcess() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

// OpenMP's setting belongs to the thread that made it: a second thread must not start a team of its
// own.
TEST(Model, ComputesOnTheCallingThreadAloneWhicheverThatIs) {
  setComputeThreads(1);
  const auto model = modelOf(specOf("mnist_cnn", 0), {28, 28, 1}, 10);
  const Batch batch = makeBatch({28, 28, 1}, 10, 32, 4);
  std::ptrdiff_t before = 0, after = 0;
  std::thread other([&] {
    before = threadsOfProcess();
    stepOf(*model, batch);
    after = threadsOfProcess();
  });
  other.join();
  EXPECT_EQ(after, before);
}

void expectLearns(const v1::ModelSpec& spec, float rate) {
  const std::array<int, 3> shape{12, 12, 1};
  const auto model = modelOf(spec, shape, 4);
  double first = 0, last = 0;
  for (int i = 0; i < 30; ++i) {
    const Step step = stepOf(*model, makeBatch(shape, 4, 32, 100 + i));
    (i == 0 ? first : last) = step.loss / 32;
    for (std::size_t v = 0; v < step.gradients.size(); ++v) {
      const auto weights = model->weights(static_cast<int>(v));
      for (std::size_t k = 0; k < weights.size(); ++k)
        weights[k] -= rate * step.gradients[v][k] / 32;
    }
  }
  EXPECT_LT(last, 0.5 * first);
  const auto score = model->evaluate(makeBatch(shape, 4, 100, 7));
  ASSERT_TRUE(score.ok());
  EXPECT_GT(score->hits, 80);  // 25 by chance
}

TEST(Model, CnnLearns) {
  expectLearns(specOf("mnist_cnn", 0.5), 0.01f);
}
TEST(Model, MlpLearns) {
  expectLearns(specOf("mlp", 0.1, {32}), 0.1f);
}

TEST(Model, EvaluationInChunksAddsUp) {
  const v1::ModelSpec spec = specOf("mlp", 0.5, {8});
  const auto model = modelOf(spec, {3, 3, 1}, 4);
  const Batch batch = makeBatch({3, 3, 1}, 4, 2300, 8);
  const auto expected =
      reference::score(referenceOf(spec, *model), weightsOf(*model), batch, false);
  const auto score = model->evaluate(batch);
  ASSERT_TRUE(score.ok());
  EXPECT_EQ(score->samples, 2300);
  EXPECT_EQ(score->hits, expected.hits);
  EXPECT_NEAR(score->loss_sum, expected.loss, 1e-5 * expected.loss);
}

TEST(Model, GradientsAreInTheMemoryThatIsWanted) {
  for (const char* name : {"mnist_cnn", "mlp", "vgg19"}) {
    const std::array<int, 3> shape{32, 32, 1};
    const auto model = modelOf(specOf(name, 0.5, {6}), shape, 10);
    const Batch batch = makeBatch(shape, 10, 2, 3);
    const Step expected = stepOf(*model, batch);
    const auto memory = std::make_shared<RememberedBlocks>();
    model->deliverIn(memory);
    std::vector<Gradient> kept;
    ASSERT_TRUE(
        model->forwardBackward(batch, [&](Gradient g) { kept.push_back(std::move(g)); }).ok());
    ASSERT_EQ(kept.size(), model->variables().size()) << name;
    for (const Gradient& gradient : kept) {
      EXPECT_TRUE(memory->contains(gradient.values)) << name << " " << gradient.variable;
      EXPECT_THAT(gradient.values,
                  testing::ElementsAreArray(expected.gradients[gradient.variable]));
    }
    EXPECT_EQ(memory->blocks.size(), kept.size());
    kept.clear();
    EXPECT_TRUE(memory->blocks.empty()) << name << ": nothing is kept for itself";
  }
}

TEST(Model, ABrokenWeightShowsInTheLoss) {
  for (const int variable : {0, 2, 4, 7}) {
    const auto model = modelOf(specOf("mnist_cnn", 0), {8, 8, 1}, 10);
    model->weights(variable)[0] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(stepOf(*model, makeBatch({8, 8, 1}, 10, 4, 3)).loss)) << variable;
  }
}

TEST(ModelErrors, NameWhatDoesNotFit) {
  EXPECT_THAT(std::string(makeModel(specOf("vgg19", 0), {31, 224, 3}, 5, 1).status().message()),
              HasSubstr("vgg19 needs at least 32x32 pixels"));
  EXPECT_THAT(std::string(makeModel(specOf("mlp", 1.0), {2, 2, 1}, 2, 1).status().message()),
              HasSubstr("model.dropout"));
  EXPECT_THAT(std::string(makeModel(specOf("lenet", 0), {2, 2, 1}, 2, 1).status().message()),
              HasSubstr("lenet"));
}

TEST(ModelErrors, BatchesThatDoNotFit) {
  const auto model = modelOf(specOf("mlp", 0, {4}), {3, 2, 1}, 4);
  const auto messageOf = [&](const Batch& batch) {
    int delivered = 0;
    const auto trained = model->forwardBackward(batch, [&](const Gradient&) { ++delivered; });
    const auto evaluated = model->evaluate(batch);
    EXPECT_EQ(delivered, 0);
    EXPECT_EQ(trained.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(trained.status(), evaluated.status());
    return std::string(trained.status().message());
  };
  EXPECT_THAT(messageOf(makeBatch({2, 3, 1}, 4, 2, 1)),
              HasSubstr("images of 2x3x1, the model was made for 3x2x1"));
  Batch label = makeBatch({3, 2, 1}, 4, 2, 1);
  label.labels[1] = 4;
  EXPECT_THAT(messageOf(label), HasSubstr("has class 4, expected 0 to 3"));
  Batch pixels = makeBatch({3, 2, 1}, 4, 2, 1);
  pixels.images.pop_back();
  EXPECT_THAT(messageOf(pixels), HasSubstr("11 pixel values, expected 12"));
  Batch nothing;
  nothing.shape = {3, 2, 1};
  EXPECT_THAT(messageOf(nothing), HasSubstr("without samples"));
}

TEST(MathLibraries, AreNamed) {
  setComputeThreads(1);
  EXPECT_THAT(mathLibraries(), testing::MatchesRegex("oneDNN [0-9.]+, OpenBLAS [0-9.]+, 1 thread"));
}

}  // namespace
}  // namespace trainyard::runtime
