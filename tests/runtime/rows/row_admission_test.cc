// Ids that are counted before they get a row, in a table that is a step of gradients at a time.
#include "runtime/rows/row_admission.h"

#include <limits>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/core/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/rows/row_copy.h"
#include "runtime/rows/row_steps.h"
#include "tests/runtime/rows/whole_table.h"

namespace trainyard::runtime::rows {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class RowAdmissionTest : public testing::Test {
 protected:
  RowAdmissionTest() {
    spec_.set_name("SGD");
    spec_.set_learning_rate(1);
    optimizer_ = *makeOptimizer(spec_);
    begin({});
  }
  void begin(RowEviction evict, std::int64_t max_rows = 100'000) {
    options_ = {};
    options_.name = "user";
    options_.max_rows = max_rows;
    options_.initial = {RowInitializer::Kind::kUniform, 0.5F};
    options_.admit_after = 3;
    options_.evict = evict;
    table_ = std::make_unique<RowTable>(options_, *optimizer_);
    admission_ = std::make_unique<RowAdmission>(options_, PartitionRange{});
  }
  // Ids with their occurrences and the sums of their gradients; what is let through.
  RowGradients filter(std::int64_t step, std::map<std::uint64_t, std::pair<int, float>> brought) {
    RowGradients sum;
    for (const auto& [id, of] : brought) {
      sum.ids.push_back(id);
      sum.counts.push_back(static_cast<std::uint32_t>(of.first));
      sum.sums.push_back(of.second);
    }
    admission_->filter(*table_, step, sum);
    RowUndo undo;
    const auto number = static_cast<std::uint32_t>(step);
    EXPECT_TRUE(table_->update({{step, 1}, number, sum.ids, sum.counts, sum.sums}, &undo).ok());
    admission_->evict(step + 1, step);
    return sum;
  }
  std::map<std::uint64_t, std::uint32_t> counted() const {
    const TableRows copy = copyRows(admission_->counted(), 0);
    EXPECT_THAT(copy.weights, IsEmpty());
    std::map<std::uint64_t, std::uint32_t> counts;
    for (std::size_t i = 0; i < copy.ids.size(); ++i) counts[copy.ids[i]] = copy.counts[i];
    return counts;
  }
  float read(std::uint64_t id) const {
    float weight = -1;
    table_->pull(std::span(&id, 1), std::span(&weight, 1));
    return weight;
  }

  v1::OptimizerSpec spec_;
  std::unique_ptr<Optimizer> optimizer_;
  RowTableOptions options_;
  std::unique_ptr<RowTable> table_;
  std::unique_ptr<RowAdmission> admission_;
};

using Counts = std::map<std::uint64_t, std::uint32_t>;

TEST_F(RowAdmissionTest, AnIdGetsItsRowWhenItHasOccurredOftenEnough) {
  EXPECT_THAT(filter(0, {{5, {2, 1}}, {6, {1, 1}}}).ids, IsEmpty());
  EXPECT_EQ(counted(), (Counts{{5, 2}, {6, 1}}));
  EXPECT_EQ(read(5), 0) << "as if it were not there";
  const RowGradients sum = filter(1, {{4, {1, 8}}, {5, {1, 0.25F}}, {6, {1, 1}}});
  EXPECT_THAT(sum.ids, ElementsAre(5));
  EXPECT_THAT(sum.counts, ElementsAre(3)) << "with all of its occurrences";
  EXPECT_THAT(sum.sums, ElementsAre(0.25F)) << "and its own gradient";
  EXPECT_EQ(counted(), (Counts{{4, 1}, {6, 2}}));
  // It begins as any row does.
  options_.admit_after = 1;
  const RowTable plain(options_, *optimizer_);
  float initial = 0;
  const std::uint64_t id = 5;
  plain.pull(std::span(&id, 1), std::span(&initial, 1));
  EXPECT_EQ(read(5), initial - 0.25F);
  // From then on it is in.
  EXPECT_THAT(filter(2, {{5, {1, 0}}}).counts, ElementsAre(1));
  EXPECT_EQ(table_->countOf(5), 4U);
}

TEST_F(RowAdmissionTest, OneStepMayBeEnough) {
  EXPECT_THAT(filter(0, {{5, {3, 1}}, {6, {7, 1}}}).ids, UnorderedElementsAre(5, 6));
  EXPECT_THAT(counted(), IsEmpty());
}

TEST_F(RowAdmissionTest, AStepThatIsUndoneWasNotCounted) {
  filter(0, {{5, {2, 1}}, {6, {1, 1}}});
  const Counts before = counted();
  RowGradients sum{.ids = {5, 6, 7}, .counts = {1, 1, 1}, .sums = {1, 1, 1}};
  admission_->filter(*table_, 1, sum);
  EXPECT_EQ(counted(), (Counts{{6, 2}, {7, 1}}));
  admission_->revert();
  EXPECT_EQ(counted(), before);
}

TEST_F(RowAdmissionTest, WhatIsOldIsForgotten) {
  begin({.after_steps = 5, .below_norm = 0.9, .every_steps = 1});
  filter(0, {{5, {2, 1}}, {6, {2, 1}}});
  filter(3, {{6, {0, 1}}});
  filter(4, {});
  EXPECT_EQ(counted(), (Counts{{5, 2}, {6, 2}}));
  filter(5, {});
  EXPECT_EQ(counted(), (Counts{{6, 2}}));
  EXPECT_THAT(filter(6, {{5, {1, 1}}, {6, {1, 1}}}).ids, ElementsAre(6));
}

TEST_F(RowAdmissionTest, NoMoreAreCountedThanRowsMayBe) {
  begin({}, 1);
  std::map<std::uint64_t, std::pair<int, float>> all;
  for (std::uint64_t id = 0; id < 100'000; ++id) all[id] = {1, 0};
  filter(0, all);
  EXPECT_EQ(counted().size(), static_cast<std::size_t>(partitionCap(1) * kPartitions));
}

TEST_F(RowAdmissionTest, AFileHasWhatIsCounted) {
  filter(0, {{5, {2, 1}}, {6, {1, 1}}});
  const TableRows copy = copyRows(admission_->counted(), 0);
  begin({});
  loadRows(copy, admission_->counted());
  EXPECT_EQ(counted(), (Counts{{5, 2}, {6, 1}}));
  EXPECT_THAT(filter(1, {{5, {1, 1}}}).ids, ElementsAre(5));
}

// A gradient of an id that has no row ends the job all the same.
TEST_F(RowAdmissionTest, AGradientThatIsNotFiniteIsNamedThoughItsIdHasNoRow) {
  RowSteps part({{options_, optimizer_.get(), LearningRate(spec_)}}, {});
  const auto take = [&](std::int64_t step, float gradient) {
    PartUpdate update;
    update.point = update.step = step;
    update.gradients = {{.ids = {5}, .counts = {1}, .sums = {gradient}}};
    return part.takeAsReplica(std::make_shared<const PartUpdate>(update));
  };
  EXPECT_EQ(part.stores(), 2U);
  EXPECT_TRUE(take(0, 1));
  EXPECT_FALSE(take(1, std::numeric_limits<float>::quiet_NaN()));
  EXPECT_EQ(std::string(part.failure().message()),
            "table user: the gradient of id 5 is not finite");
  EXPECT_EQ(part.store(1).countOf(5), 1U) << "the step before it stands";
  EXPECT_TRUE(take(1, 1) && take(2, 1));
  EXPECT_EQ(part.table(0).countOf(5), 3U);
}

}  // namespace
}  // namespace trainyard::runtime::rows
