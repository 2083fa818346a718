// What is wide_and_deep's alone; the rest is in tabular_model_test.cc.
#include "runtime/model/wide_and_deep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/catalog/catalog.h"
#include "runtime/model/model.h"
#include "tests/runtime/model/tabular_job.h"
#include "tests/runtime/model/tabular_step.h"

namespace trainyard::runtime::tabular {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TabularJob everything() {
  return {.label = "everything",
          .tables = {user(), wideUser(), words(), tags(), wideBags()},
          .numbers = 2,
          .hidden = {6, 5},
          .dropout = 0,
          .bottom = {}};
}

TEST(WideAndDeep, EvaluationIsTheForwardPass) {
  const auto model = tabularModel(everything());
  const Batch batch = tabularBatch(everything(), 50, 8);
  const TabularStep step = stepOf(*model, batch);
  const auto score = model->evaluate(batch);
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_EQ(score->loss_sum, step.loss);
  EXPECT_EQ(score->hits, step.hits);
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
}  // namespace trainyard::runtime::tabular
