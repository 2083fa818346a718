// The models over embedding tables against references of their own in double precision, and as
// models of the step loop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/core/rng.h"
#include "runtime/data/table_lookup.h"
#include "runtime/model/model.h"
#include "tests/runtime/model/remembered_blocks.h"
#include "tests/runtime/model/tabular_job.h"
#include "tests/runtime/model/tabular_step.h"

namespace trainyard::runtime::tabular {
namespace {

// As wide as user()'s rows.
TableLookup bags3() {
  return {"bags", 3, Combiner::kSqrtN, {1, 2}};
}
// Of more floats than are multiplied side by side, and no multiple of them.
TableLookup longRows() {
  return {"long", 19, Combiner::kSum, {0, 1}};
}

class TabularModels : public testing::TestWithParam<TabularJob> {
 protected:
  void SetUp() override { setComputeThreads(1); }

  const TabularJob& job_ = GetParam();
  std::unique_ptr<Model> model_ = tabularModel(job_);
};
INSTANTIATE_TEST_SUITE_P(
    Jobs, TabularModels,
    testing::Values(
        TabularJob{"everything", {user(), wideUser(), words(), tags(), wideBags()}, 2, {6, 5}, 0},
        TabularJob{"dropout", {user(), words(), wideBags()}, 3, {30, 20}, 0.4},
        TabularJob{"noNumbers", {words(), wideUser()}, 0, {5}, 0},
        TabularJob{"nothingWide", {tags(), user()}, 0, {5}, 0},
        TabularJob{"numbersAlone", {}, 4, {5, 3, 4}, 0},
        TabularJob{"nothingDeepButNumbers", {wideBags()}, 3, {6}, 0},
        TabularJob{"dlrm", {user(), bags3()}, 2, {6, 5}, 0, {4, 3}},
        TabularJob{"dlrmDropout", {user(), bags3()}, 3, {30, 20}, 0.4, {10, 3}},
        TabularJob{"dlrmOneTable", {tags()}, 1, {5}, 0, {4}},
        TabularJob{"dlrmWideRows", {longRows()}, 2, {5}, 0, {6, 19}},
        TabularJob{"dlrmScalars", {wideUser(), wideBags()}, 2, {5}, 0, {1}}),
    [](const auto& info) { return std::string(info.param.label); });

TEST_P(TabularModels, EvaluationGivesTheReferencesLossAndHits) {
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

TEST_P(TabularModels, GradientsAreTheSlopesOfTheSummedLoss) {
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

// The loss is linear in the weights of the samples, and so is all that follows from it.
void addTimes(float weight, const TabularStep& step, TabularStep& sum) {
  sum.loss += weight * step.loss;
  const auto add = [&](const auto& from, auto& to) {
    for (std::size_t a = 0; a < from.size(); ++a)
      for (std::size_t i = 0; i < from[a].size(); ++i) to[a][i] += weight * from[a][i];
  };
  add(step.gradients, sum.gradients);
  add(step.rows, sum.rows);
}

void expectNear(const std::vector<std::vector<float>>& found,
                const std::vector<std::vector<float>>& expected) {
  for (std::size_t a = 0; a < expected.size(); ++a)
    for (std::size_t i = 0; i < expected[a].size(); ++i)
      EXPECT_NEAR(found[a][i], expected[a][i], 1e-5) << a << "[" << i << "]";
}

TEST_P(TabularModels, LossAndGradientsAreSumsByWeight) {
  const std::vector<float> weights = {1, 0, 2.5f, 0.25f, 0, 3};
  Batch batch = tabularBatch(job_, static_cast<int>(weights.size()), 2);
  TabularStep expected = stepOf(*model_, batch);
  addTimes(-1, TabularStep(expected), expected);  // zeros
  for (std::size_t s = 0; s < weights.size(); ++s) {
    batch.weights.assign(weights.size(), 0);
    batch.weights[s] = 1;
    addTimes(weights[s], stepOf(*model_, batch), expected);
  }
  batch.weights = weights;
  const TabularStep step = stepOf(*model_, batch);
  EXPECT_GT(expected.loss, 0.1);
  EXPECT_NEAR(step.loss, expected.loss, 1e-5);
  expectNear(step.gradients, expected.gradients);
  expectNear(step.rows, expected.rows);
}

TEST_P(TabularModels, WeightsOfOneAreNone) {
  Batch batch = tabularBatch(job_, 9, 2);
  const TabularStep step = stepOf(*model_, batch);
  const auto score = model_->evaluate(batch);
  batch.weights.assign(9, 1);
  EXPECT_EQ(stepOf(*model_, batch), step);
  const auto weighted = model_->evaluate(batch);
  EXPECT_EQ(weighted->loss_sum, score->loss_sum);
  EXPECT_EQ(weighted->clicks.predicted, score->clicks.predicted);
  batch.weights.assign(9, 2);
  EXPECT_EQ(model_->evaluate(batch)->loss_sum, 2 * score->loss_sum);
  EXPECT_EQ(model_->evaluate(batch)->clicks.calibration(), score->clicks.calibration());
  EXPECT_EQ(model_->evaluate(batch)->hits, score->hits);
  batch.weights.pop_back();
  EXPECT_TRUE(absl::IsInvalidArgument(model_->evaluate(batch).status()));
}

TEST_P(TabularModels, TheSameBatchGivesTheSameBits) {
  const Batch batch = tabularBatch(job_, 16, 4);
  const TabularStep first = stepOf(*model_, batch);
  stepOf(*model_, tabularBatch(job_, 5, 5));  // leaves nothing behind
  ASSERT_TRUE(model_->evaluate(tabularBatch(job_, 40, 6)).ok());
  EXPECT_EQ(stepOf(*model_, batch), first);
  EXPECT_EQ(stepOf(*tabularModel(job_), batch), first);
}

// The next version of a variable may be there before the pass has ended.
TEST_P(TabularModels, WeightsMayBeOverwrittenWhenTheirGradientIsThere) {
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

TEST_P(TabularModels, GradientsAreInTheMemoryThatIsWanted) {
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

TEST_P(TabularModels, ABrokenWeightOrRowShowsInTheLoss) {
  constexpr float kBroken = std::numeric_limits<float>::quiet_NaN();
  const Batch sound = tabularBatch(job_, 7, 2);
  for (std::size_t v = 0; v < model_->variables().size(); ++v) {
    const auto model = tabularModel(job_);
    std::ranges::fill(model->weights(static_cast<int>(v)), kBroken);
    EXPECT_TRUE(std::isnan(stepOf(*model, sound).loss)) << v;
    EXPECT_TRUE(std::isnan(model->evaluate(sound)->loss_sum)) << v;
  }
  for (std::size_t t = 0; t < sound.rows.size(); ++t) {
    Batch batch = sound;
    std::ranges::fill(batch.rows[t], kBroken);
    EXPECT_TRUE(std::isnan(stepOf(*model_, batch).loss)) << t;
  }
}

// Tables of a job whose truth is planted: clicks follow one hidden number of each user and word,
// and the number of a sample.
class PlantedClicks {
 public:
  explicit PlantedClicks(TabularJob of) : job(std::move(of)), rows_(job.tables.size()) {
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

  const TabularJob job;

 private:
  static constexpr std::size_t kIds = 30;

  double truthOf(const Batch& batch, int sample) const {
    double sum = truth_[batch.features[0].ids[sample]] + batch.numbers[sample];
    const FeatureIds& bags = batch.features[1];
    for (int k = sample == 0 ? 0 : bags.ends[sample - 1]; k < bags.ends[sample]; ++k)
      sum += truth_[bags.ids[k]];
    return sum;
  }

  std::vector<double> truth_;             // by id
  std::vector<std::vector<float>> rows_;  // by table, id
};

class PlantedTruth : public testing::TestWithParam<TabularJob> {};
INSTANTIATE_TEST_SUITE_P(
    Jobs, PlantedTruth,
    testing::Values(TabularJob{"wideAndDeep", {user(), words(), wideUser()}, 1, {16}, 0},
                    TabularJob{"dlrm", {user(), bags3()}, 1, {16}, 0, {3}}),
    [](const auto& info) { return std::string(info.param.label); });

TEST_P(PlantedTruth, IsLearnt) {
  setComputeThreads(1);
  PlantedClicks clicks(GetParam());
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

}  // namespace
}  // namespace trainyard::runtime::tabular
