// What is dlrm's alone; the rest is in tabular_model_test.cc.
#include "runtime/model/dlrm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/catalog/catalog.h"
#include "runtime/model/interaction.h"
#include "runtime/model/model.h"
#include "tests/runtime/model/tabular_job.h"
#include "tests/runtime/model/tabular_step.h"

namespace trainyard::runtime::tabular {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TabularJob ranking() {
  return {.label = "ranking",
          .tables = {user(), {"items", 3, Combiner::kSum, {1, 2}}},
          .numbers = 2,
          .hidden = {6},
          .dropout = 0,
          .bottom = {5, 3}};
}

TEST(Interaction, IsTheFirstVectorAndTheProductsBelowTheDiagonal) {
  const Interaction shape{.count = 4, .dim = 2};
  const std::vector<float> vectors{1, 2, 3, 4, 5, 6, 7, 8,  // a sample
                                   0, 1, 1, 0, 2, 0, 0, 3};
  std::vector<float> out(2 * shape.outputs());
  interact(shape, vectors.data(), 2, out.data());
  EXPECT_THAT(out, ElementsAre(1, 2, 11, 17, 39, 23, 53, 83,  // 1.0 2.0 2.1 3.0 3.1 3.2
                               0, 1, 0, 0, 2, 3, 0, 0));
}

TEST(Interaction, ItsGradientGoesToBothOfTwo) {
  const Interaction shape{.count = 3, .dim = 2};
  const std::vector<float> vectors{1, 2, 3, 4, 5, 6};
  const std::vector<float> gradient{10, 20, 1, 100, 1000};  // x, 1.0, 2.0, 2.1
  std::vector<float> found(6, -1);
  interactBackward(shape, vectors.data(), gradient.data(), 1, found.data());
  EXPECT_THAT(found,
              ElementsAre(10 + 3 + 500, 20 + 4 + 600, 1 + 5000, 2 + 6000, 100 + 3000, 200 + 4000));
}

TEST(Interaction, OfNumbersAloneIsTheirVector) {
  const Interaction shape{.count = 1, .dim = 3};
  const std::vector<float> vectors{1, 2, 3};
  std::vector<float> out(3), found(3);
  interact(shape, vectors.data(), 1, out.data());
  EXPECT_EQ(out, vectors);
  interactBackward(shape, vectors.data(), out.data(), 1, found.data());
  EXPECT_EQ(found, vectors);
}

TEST(Dlrm, GradientsLeaveFromTheLastLayerToTheFirst) {
  const auto model = tabularModel(ranking());
  std::vector<std::string> order;
  const auto sink = [&](const Gradient& g) {
    order.push_back(model->variables()[g.variable].name);
  };
  ASSERT_TRUE(model->forwardBackward(tabularBatch(ranking(), 3, 1), sink).ok());
  EXPECT_THAT(order, ElementsAre("output_bia", "output_wei", "hidden1_bia", "hidden1_wei",
                                 "bottom2_bia", "bottom2_wei", "bottom1_bia", "bottom1_wei"));
}

TEST(Dlrm, ABatchWithoutAnyIdIsItsNumbers) {
  const TabularJob job{"", {{"items", 3, Combiner::kMean, {1, 2}}}, 2, {5}, 0, {3}};
  const auto model = tabularModel(job);
  Batch batch = tabularBatch(job, 4, 1);
  for (FeatureIds& ids : batch.features) ids = {.ids = {}, .ends = {0, 0, 0, 0}};
  for (auto& rows : batch.rows) rows.clear();
  const TabularStep step = stepOf(*model, batch);
  EXPECT_NEAR(step.loss, scoreOf(job, batch, pointOf(*model, batch), true).loss, 1e-5);
  EXPECT_THAT(step.rows, ElementsAre(testing::IsEmpty()));
}

TEST(DlrmErrors, WhatItCannotBeMadeOf) {
  const TabularJob job = ranking();
  const auto failure = [&](const v1::ModelSpec& spec, const std::string& device,
                           const std::vector<TableLookup>& tables) {
    const Status status = makeModel(spec, shapeOf(job), 2, kTabularSeed, device, tables).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(failure(specOf(job), "cuda:0", job.tables),
            "training.device: dlrm computes on the processor");
  EXPECT_EQ(failure(specOf(job), "", {user(), tags()}),
            "training.tables: table tags has dim 4, the last width of model.bottomHidden is 3");
  EXPECT_EQ(failure(specOf(job), "", {user()}),
            "training.tables: 1 features make 4 inputs of the top layers, the model is laid out "
            "for 9");
  v1::ModelSpec simulated = specOf(job);
  simulated.set_simulated_step_seconds(1);
  EXPECT_THAT(failure(simulated, "", job.tables),
              HasSubstr("model.simulatedStepSeconds: not with model dlrm"));
}

TEST(Dlrm, LayoutIsTheCatalogues) {
  const auto layout = modelLayout(specOf(ranking()), shapeOf(ranking()), 2);
  ASSERT_TRUE(layout.ok()) << layout.status();
  const auto model = tabularModel(ranking());
  ASSERT_EQ(layout->variables.size(), model->variables().size() + 1);
  EXPECT_EQ(layout->variables.front().name, kGlobalStep);
  for (std::size_t v = 0; v < model->variables().size(); ++v) {
    EXPECT_EQ(layout->variables[v + 1].name, model->variables()[v].name);
    EXPECT_EQ(layout->variables[v + 1].elements(),
              static_cast<std::int64_t>(model->weights(static_cast<int>(v)).size()));
  }
}

}  // namespace
}  // namespace trainyard::runtime::tabular
