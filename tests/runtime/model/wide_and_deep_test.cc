// wide_and_deep against a reference of its own in double precision, and as a model of the step
// loop.
#include "runtime/model/wide_and_deep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/core/rng.h"
#include "runtime/catalog/catalog.h"
#include "runtime/model/model.h"
#include "tests/runtime/model/remembered_blocks.h"
#include "tests/runtime/model/tabular_job.h"

namespace trainyard::runtime {
namespace {

using reference::Values;
using tabular::kTabularSeed;
using tabular::Point;
using tabular::TabularJob;
using testing::ElementsAre;
using testing::HasSubstr;

TableLookup user() {
  return {"user", 3, Combiner::kMean, {0}};
}
TableLookup words() {
  return {"words", 2, Combiner::kSum, {1, 2}};
}
TableLookup tags() {
  return {"tags", 4, Combiner::kSqrtN, {2}};
}
TableLookup wideUser() {
  return {"wide_user", 1, Combiner::kSum, {0}};
}
TableLookup wideBags() {
  return {"wide_bags", 1, Combiner::kMean, {2, 1}};
}

TabularJob everything() {
  return {.label = "everything",
          .tables = {user(), wideUser(), words(), tags(), wideBags()},
          .numbers = 2,
          .hidden = {6, 5},
          .dropout = 0};
}

// Weights in [-0.5, 0.5), biases too.
std::unique_ptr<Model> tabularModel(const TabularJob& job) {
  auto model = makeModel(specOf(job), shapeOf(job), 2, kTabularSeed, "", job.tables);
  EXPECT_TRUE(model.ok()) << model.status();
  Rng rng(kTabularSeed);
  for (std::size_t v = 0; v < (*model)->variables().size(); ++v)
    for (float& w : (*model)->weights(static_cast<int>(v)))
      w = static_cast<float>(rng.unit() - 0.5);
  return *std::move(model);
}

Point pointOf(Model& model, const Batch& batch) {
  Point point;
  for (std::size_t v = 0; v < model.variables().size(); ++v) {
    const auto weights = model.weights(static_cast<int>(v));
    point.weights.emplace_back(weights.begin(), weights.end());
  }
  for (const auto& rows : batch.rows) point.rows.emplace_back(rows.begin(), rows.end());
  return point;
}

struct TabularStep {
  double loss = 0;
  std::vector<std::vector<float>> gradients;  // by variable
  std::vector<std::vector<float>> rows;
  bool operator==(const TabularStep&) const = default;
};

TabularStep stepOf(Model& model, const Batch& batch) {
  TabularStep step;
  step.gradients.resize(model.variables().size());
  const auto loss = model.forwardBackward(batch, [&](const Gradient& g) {
    EXPECT_TRUE(step.gradients[g.variable].empty()) << "once each";
    step.gradients[g.variable].assign(g.values.begin(), g.values.end());
  });
  EXPECT_TRUE(loss.ok()) << loss.status();
  step.loss = loss->loss_sum;
  EXPECT_EQ(loss->samples, batch.size());
  step.rows = model.takeRowGradients();
  return step;
}

class WideAndDeepJobs : public testing::TestWithParam<TabularJob> {
 protected:
  void SetUp() override { setComputeThreads(1); }

  const TabularJob& job_ = GetParam();
  std::unique_ptr<Model> model_ = tabularModel(job_);
};
INSTANTIATE_TEST_SUITE_P(
    Jobs, WideAndDeepJobs,
    testing::Values(everything(),
                    TabularJob{"dropout", {user(), words(), wideBags()}, 3, {30, 20}, 0.4},
                    TabularJob{"noNumbers", {words(), wideUser()}, 0, {5}, 0},
                    TabularJob{"nothingWide", {tags(), user()}, 0, {5}, 0},
                    TabularJob{"numbersAlone", {}, 4, {5, 3, 4}, 0},
                    TabularJob{"nothingDeepButNumbers", {wideBags()}, 3, {6}, 0}),
    [](const auto& info) { return std::string(info.param.label); });

TEST_P(WideAndDeepJobs, EvaluationGivesTheReferencesLossAndHits) {
  const Batch batch = tabularBatch(job_, 31, 1);
  const reference::Score expected = scoreOf(job_, batch, pointOf(*model_, batch), false);
  const auto score = model_->evaluate(batch);
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_NEAR(score->loss_sum, expected.loss, 1e-5 * expected.loss);
  EXPECT_EQ(score->hits, expected.hits);
  EXPECT_EQ(score->samples, 31);
}

// Compares each of `found` with the reference's central difference, `values` being what they are
// the gradient of.
void expectTheSlopes(const std::vector<float>& found, Values& values,
                     const std::function<double()>& loss, const std::string& what) {
  ASSERT_EQ(found.size(), values.size()) << what;
  double largest = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    constexpr double kMove = 1e-6;
    const double before = values[i];
    values[i] = before + kMove;
    const double up = loss();
    values[i] = before - kMove;
    const double slope = (up - loss()) / (2 * kMove);
    values[i] = before;
    largest = std::max(largest, std::fabs(slope));
    EXPECT_NEAR(found[i], slope, 1e-4 * std::fabs(slope) + 2e-5) << what << "[" << i << "]";
  }
  EXPECT_GT(largest, 1e-3) << what << ": the test sees no gradient at all";
}

TEST_P(WideAndDeepJobs, GradientsAreTheSlopesOfTheSummedLoss) {
  const Batch batch = tabularBatch(job_, 7, 2);
  const TabularStep step = stepOf(*model_, batch);
  Point at = pointOf(*model_, batch);
  const auto loss = [&] { return scoreOf(job_, batch, at, true).loss; };
  EXPECT_NEAR(step.loss, loss(), 1e-5 * loss());
  for (std::size_t v = 0; v < at.weights.size(); ++v)
    expectTheSlopes(step.gradients[v], at.weights[v], loss, model_->variables()[v].name);
  ASSERT_EQ(step.rows.size(), job_.tables.size());
  for (std::size_t t = 0; t < at.rows.size(); ++t)
    expectTheSlopes(step.rows[t], at.rows[t], loss, job_.tables[t].name);
}

TEST_P(WideAndDeepJobs, TheSameBatchGivesTheSameBits) {
  const Batch batch = tabularBatch(job_, 16, 4);
  const TabularStep first = stepOf(*model_, batch);
  stepOf(*model_, tabularBatch(job_, 5, 5));  // leaves nothing behind
  ASSERT_TRUE(model_->evaluate(tabularBatch(job_, 40, 6)).ok());
  EXPECT_EQ(stepOf(*model_, batch), first);
  EXPECT_EQ(stepOf(*tabularModel(job_), batch), first);
}

// The next version of a variable may be there before the pass has ended.
TEST_P(WideAndDeepJobs, WeightsMayBeOverwrittenWhenTheirGradientIsThere) {
  const Batch batch = tabularBatch(job_, 7, 2);
  const TabularStep undisturbed = stepOf(*model_, batch);
  std::vector<std::vector<float>> gradients(model_->variables().size());
  const auto sink = [&](const Gradient& g) {
    gradients[g.variable].assign(g.values.begin(), g.values.end());
    for (float& w : model_->weights(g.variable)) w = 1e30f;
  };
  ASSERT_TRUE(model_->forwardBackward(batch, sink).ok());
  EXPECT_EQ(gradients, undisturbed.gradients);
  EXPECT_EQ(model_->takeRowGradients(), undisturbed.rows);
}

TEST_P(WideAndDeepJobs, GradientsAreInTheMemoryThatIsWanted) {
  const Batch batch = tabularBatch(job_, 7, 2);
  const auto memory = std::make_shared<RememberedBlocks>();
  model_->deliverIn(memory);
  std::vector<Gradient> kept;
  const auto keep = [&](Gradient g) { kept.push_back(std::move(g)); };
  ASSERT_TRUE(model_->forwardBackward(batch, keep).ok());
  ASSERT_EQ(kept.size(), model_->variables().size());
  std::vector<std::vector<float>> values;
  for (const Gradient& g : kept) {
    EXPECT_TRUE(memory->contains(g.values)) << g.variable;
    values.emplace_back(g.values.begin(), g.values.end());
  }
  EXPECT_EQ(memory->blocks.size(), kept.size());
  stepOf(*model_, tabularBatch(job_, 9, 3));
  for (std::size_t i = 0; i < kept.size(); ++i)
    EXPECT_THAT(kept[i].values, testing::ElementsAreArray(values[i])) << "a later step's";
  kept.clear();
  EXPECT_TRUE(memory->blocks.empty()) << "nothing is kept for itself";
}

TEST(WideAndDeep, EvaluationIsTheForwardPass) {
  const auto model = tabularModel(everything());
  const Batch batch = tabularBatch(everything(), 50, 8);
  const TabularStep step = stepOf(*model, batch);
  const auto score = model->evaluate(batch);
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_EQ(score->loss_sum, step.loss);
}

TEST(WideAndDeep, GradientsLeaveFromTheLastLayerToTheFirst) {
  const auto model = tabularModel(everything());
  std::vector<std::string> order;
  const auto sink = [&](const Gradient& g) {
    order.push_back(model->variables()[g.variable].name);
  };
  ASSERT_TRUE(model->forwardBackward(tabularBatch(everything(), 3, 1), sink).ok());
  EXPECT_THAT(order, ElementsAre("numbers_wei", "output_bia", "output_wei", "hidden2_bia",
                                 "hidden2_wei", "hidden1_bia", "hidden1_wei"));
}

TEST(WideAndDeep, GradientsOfRowsAreTakenOnce) {
  const auto model = tabularModel(everything());
  EXPECT_TRUE(model->takeRowGradients().empty());
  stepOf(*model, tabularBatch(everything(), 3, 1));
  EXPECT_TRUE(model->takeRowGradients().empty());
}

TEST(WideAndDeep, ABatchWithoutAnyIdIsItsNumbers) {
  const TabularJob job{"", {words(), wideBags()}, 2, {5}, 0};
  const auto model = tabularModel(job);
  Batch batch = tabularBatch(job, 4, 1);
  for (FeatureIds& ids : batch.features) ids = {.ids = {}, .ends = {0, 0, 0, 0}};
  for (auto& rows : batch.rows) rows.clear();
  const TabularStep step = stepOf(*model, batch);
  EXPECT_NEAR(step.loss, scoreOf(job, batch, pointOf(*model, batch), true).loss, 1e-5);
  EXPECT_THAT(step.rows, ElementsAre(testing::IsEmpty(), testing::IsEmpty()));
}

TEST(WideAndDeep, ABrokenWeightOrRowShowsInTheLoss) {
  constexpr float kBroken = std::numeric_limits<float>::quiet_NaN();
  const Batch sound = tabularBatch(everything(), 7, 2);
  for (int v = 0; v < 7; ++v) {
    const auto model = tabularModel(everything());
    std::ranges::fill(model->weights(v), kBroken);
    EXPECT_TRUE(std::isnan(stepOf(*model, sound).loss)) << v;
    EXPECT_TRUE(std::isnan(model->evaluate(sound)->loss_sum)) << v;
  }
  const auto model = tabularModel(everything());
  for (std::size_t t = 0; t < sound.rows.size(); ++t) {
    Batch batch = sound;
    std::ranges::fill(batch.rows[t], kBroken);
    EXPECT_TRUE(std::isnan(stepOf(*model, batch).loss)) << t;
  }
}

// Tables of a job whose truth is planted: clicks follow one hidden number of each user and word,
// and the number of a sample.
class PlantedClicks {
 public:
  PlantedClicks() {
    Rng rng(5);
    for (std::size_t i = 0; i < kIds; ++i) truth_.push_back(2 * rng.unit() - 1);
    for (std::size_t t = 0; t < job.tables.size(); ++t) {
      for (std::size_t i = 0; i < kIds * job.tables[t].dim; ++i)
        rows_[t].push_back(static_cast<float>(0.2 * rng.unit() - 0.1));
    }
  }

  Batch batch(int samples, std::uint64_t seed) {
    Batch batch = tabularBatch(job, samples, seed);
    for (FeatureIds& ids : batch.features)
      for (std::uint64_t& id : ids.ids) id %= kIds;
    for (int s = 0; s < samples; ++s) batch.labels[s] = truthOf(batch, s) > 0 ? 1 : 0;
    const auto occurrences = occurrencesOf(job.tables, batch.features);
    for (std::size_t t = 0; t < job.tables.size(); ++t) {
      const std::size_t dim = job.tables[t].dim;
      for (std::size_t k = 0; k < occurrences[t].size(); ++k)
        std::copy_n(rows_[t].data() + occurrences[t][k] * dim, dim, batch.rows[t].data() + k * dim);
    }
    return batch;
  }

  // Plain SGD on the means.
  void learn(Model& model, const Batch& batch, const TabularStep& step) {
    const float rate = 0.5f / static_cast<float>(batch.size());
    for (std::size_t v = 0; v < step.gradients.size(); ++v) {
      const auto weights = model.weights(static_cast<int>(v));
      for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= rate * step.gradients[v][i];
    }
    const auto occurrences = occurrencesOf(job.tables, batch.features);
    for (std::size_t t = 0; t < job.tables.size(); ++t) {
      const std::size_t dim = job.tables[t].dim;
      for (std::size_t i = 0; i < step.rows[t].size(); ++i)
        rows_[t][occurrences[t][i / dim] * dim + i % dim] -= rate * step.rows[t][i];
    }
  }

  const TabularJob job{"", {user(), words(), wideUser()}, 1, {16}, 0};

 private:
  static constexpr std::size_t kIds = 30;

  double truthOf(const Batch& batch, int sample) const {
    double sum = truth_[batch.features[0].ids[sample]] + batch.numbers[sample];
    const FeatureIds& bags = batch.features[1];
    for (int k = sample == 0 ? 0 : bags.ends[sample - 1]; k < bags.ends[sample]; ++k)
      sum += truth_[bags.ids[k]];
    return sum;
  }

  std::vector<double> truth_;               // by id
  std::array<std::vector<float>, 3> rows_;  // by table, id
};

TEST(WideAndDeep, LearnsAPlantedTruth) {
  PlantedClicks clicks;
  const auto model = tabularModel(clicks.job);
  double first = 0, last = 0;
  for (int i = 0; i < 400; ++i) {
    const Batch batch = clicks.batch(64, 100 + static_cast<std::uint64_t>(i));
    const TabularStep step = stepOf(*model, batch);
    (i == 0 ? first : last) = step.loss / 64;
    clicks.learn(*model, batch, step);
  }
  EXPECT_LT(last, 0.5 * first);
  const auto score = model->evaluate(clicks.batch(500, 7));
  ASSERT_TRUE(score.ok());
  EXPECT_GT(score->hits, 425);  // 250 by chance
}

TEST(WideAndDeepErrors, BatchesThatDoNotFit) {
  const TabularJob job = everything();
  const auto model = tabularModel(job);
  const auto messageOf = [&](const std::function<void(Batch&)>& spoil) {
    Batch batch = tabularBatch(job, 3, 1);
    spoil(batch);
    int delivered = 0;
    const auto trained = model->forwardBackward(batch, [&](const Gradient&) { ++delivered; });
    EXPECT_EQ(delivered, 0);
    EXPECT_EQ(trained.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(trained.status(), model->evaluate(batch).status());
    return std::string(trained.status().message());
  };
  EXPECT_THAT(messageOf([](Batch& b) { b = {}; }), HasSubstr("without samples"));
  EXPECT_THAT(messageOf([](Batch& b) { b.labels[1] = 2; }), HasSubstr("label 2, expected 0 or 1"));
  EXPECT_THAT(messageOf([](Batch& b) { b.keys.pop_back(); }), HasSubstr("3 labels has 2 keys"));
  EXPECT_THAT(messageOf([](Batch& b) { b.numbers.pop_back(); }),
              HasSubstr("5 numbers, expected 6"));
  EXPECT_THAT(messageOf([](Batch& b) { b.rows.pop_back(); }), HasSubstr("4 tables in a batch"));
  EXPECT_THAT(messageOf([](Batch& b) { b.rows[0].pop_back(); }),
              HasSubstr("8 values of rows of table user, expected 3 occurrences of 3"));
  EXPECT_THAT(messageOf([](Batch& b) { b.features.pop_back(); }),
              HasSubstr("no ids of 3 samples in column 2"));
  EXPECT_THAT(messageOf([](Batch& b) { b.features[0].ends.pop_back(); }), HasSubstr("in column 0"));
  EXPECT_THAT(messageOf([](Batch& b) { ++b.features[0].ends.back(); }), HasSubstr("in column 0"));
  EXPECT_THAT(messageOf([](Batch& b) { b.features[0].ends[0] = 3; }), HasSubstr("in column 0"));
}

TEST(WideAndDeepErrors, WhatItCannotBeMadeOf) {
  const TabularJob job = everything();
  const auto failure = [&](const v1::ModelSpec& spec, const std::string& device,
                           const std::vector<TableLookup>& tables) {
    const Status status = makeModel(spec, shapeOf(job), 2, 1, device, tables).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  for (const char* device : {"cuda:0", "cpu"}) {
    EXPECT_EQ(failure(specOf(job), device, job.tables),
              "training.device: wide_and_deep computes on the processor");
  }
  EXPECT_THAT(failure(specOf(job), "", {user()}),
              HasSubstr("training.tables: 5 deep inputs of tables and numbers, the model is laid "
                        "out for 13"));
  v1::ModelSpec simulated = specOf(job);
  simulated.set_simulated_step_seconds(1);
  EXPECT_THAT(failure(simulated, "", job.tables), HasSubstr("model.simulatedStepSeconds"));
  v1::ModelSpec dropout = specOf(job);
  dropout.set_dropout(1);
  EXPECT_THAT(failure(dropout, "", job.tables), HasSubstr("model.dropout"));
}

TEST(WideAndDeep, LayoutIsTheCatalogues) {
  const auto layout = modelLayout(specOf(everything()), shapeOf(everything()), 2);
  ASSERT_TRUE(layout.ok()) << layout.status();
  const auto model = tabularModel(everything());
  ASSERT_EQ(layout->variables.size(), model->variables().size() + 1);
  EXPECT_EQ(layout->variables.front().name, kGlobalStep);
  for (std::size_t v = 0; v < model->variables().size(); ++v) {
    EXPECT_EQ(layout->variables[v + 1].name, model->variables()[v].name);
    EXPECT_EQ(layout->variables[v + 1].elements(),
              static_cast<std::int64_t>(model->weights(static_cast<int>(v)).size()));
  }
}

}  // namespace
}  // namespace trainyard::runtime
