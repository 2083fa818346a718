// A model over embedding tables with weights, and what a training pass of it comes to.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/core/rng.h"
#include "runtime/model/model.h"
#include "tests/runtime/model/tabular_job.h"

namespace trainyard::runtime::tabular {

inline TableLookup user() {
  return {"user", 3, Combiner::kMean, {0}};
}
inline TableLookup words() {
  return {"words", 2, Combiner::kSum, {1, 2}};
}
inline TableLookup tags() {
  return {"tags", 4, Combiner::kSqrtN, {2}};
}
inline TableLookup wideUser() {
  return {"wide_user", 1, Combiner::kSum, {0}};
}
inline TableLookup wideBags() {
  return {"wide_bags", 1, Combiner::kMean, {2, 1}};
}

// Weights in [-0.5, 0.5), biases too.
inline std::unique_ptr<Model> tabularModel(const TabularJob& job) {
  auto model = makeModel(specOf(job), shapeOf(job), 2, kTabularSeed, "", job.tables);
  EXPECT_TRUE(model.ok()) << model.status();
  Rng rng(kTabularSeed);
  for (std::size_t v = 0; v < (*model)->variables().size(); ++v)
    for (float& w : (*model)->weights(static_cast<int>(v)))
      w = static_cast<float>(rng.unit() - 0.5);
  return *std::move(model);
}

inline Point pointOf(Model& model, const Batch& batch) {
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
  std::int64_t hits = 0;
  std::vector<std::vector<float>> gradients;  // by variable
  std::vector<std::vector<float>> rows;
  bool operator==(const TabularStep&) const = default;
};

inline TabularStep stepOf(Model& model, const Batch& batch) {
  TabularStep step;
  step.gradients.resize(model.variables().size());
  const auto loss = model.forwardBackward(batch, [&](const Gradient& g) {
    EXPECT_TRUE(step.gradients[g.variable].empty()) << "once each";
    step.gradients[g.variable].assign(g.values.begin(), g.values.end());
  });
  EXPECT_TRUE(loss.ok()) << loss.status();
  step.loss = loss->loss_sum;
  step.hits = loss->hits;
  EXPECT_EQ(loss->samples, batch.size());
  step.rows = model.takeRowGradients();
  return step;
}

}  // namespace trainyard::runtime::tabular
