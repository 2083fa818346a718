#include "runtime/rows/row_steps.h"

#include <limits>
#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/rows/one_table.h"

namespace trainyard::runtime::rows {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kSamples = 2;  // of each rank

std::vector<CallId> callsOf(const std::vector<RowAnswer>& answers) {
  std::vector<CallId> calls;
  for (const RowAnswer& answer : answers) calls.push_back(answer.call);
  return calls;
}

class RowStepsTest : public testing::Test {
 protected:
  void SetUp() override {
    plan_.step_samples = kSamples * 2;
    plan_.rank_samples = kSamples;
    plan_.steps = 100;
    plan_.ranks = 2;
    part_ = std::make_unique<RowSteps>(oneTable(), PartitionRange{});
    open(1, 0);
  }
  void open(std::int64_t epoch, std::int64_t step) {
    plan_.first_step = step;
    plan_.first_position = step * plan_.step_samples;
    ASSERT_TRUE(part_->open(epoch, plan_).ok());
    epoch_ = epoch;
  }
  RowRequest pushOf(int rank, std::int64_t step, float gradient) const {
    return stepOfRow(epoch_, rank, step, kSamples, gradient);
  }
  RowRequest readOf(int rank, std::int64_t version) const {
    return readOfRow(epoch_, rank, version);
  }
  std::vector<RowAnswer> ask(RowRequest request) {
    std::vector<RowAnswer> answers;
    part_->onRequest(std::move(request), ++call_, answers);
    return answers;
  }

  StepPlan plan_;
  std::unique_ptr<RowSteps> part_;
  std::int64_t epoch_ = 0;
  CallId call_ = 0;
};

TEST_F(RowStepsTest, AStepIsTakenWhenAllRanksHaveBroughtTheirs) {
  EXPECT_THAT(ask(pushOf(0, 0, 4)), ElementsAre());
  EXPECT_EQ(part_->table(0).size(), 0);
  const auto answers = ask(pushOf(1, 0, 8));
  EXPECT_THAT(callsOf(answers), ElementsAre(1, 2));
  for (const RowAnswer& answer : answers) {
    EXPECT_EQ(answer.code, RowAnswer::Code::kRows);
    EXPECT_EQ(answer.version, 1);
    EXPECT_THAT(answer.rows, ElementsAre(ElementsAre(-3)));  // (4 + 8) / 4 samples
  }
}

TEST_F(RowStepsTest, BothVersionsAreReadUntilTheFirstGradientOfTheNextStep) {
  ask(pushOf(0, 0, 4));
  ask(pushOf(1, 0, 8));
  EXPECT_THAT(ask(readOf(0, 0)).at(0).rows, ElementsAre(ElementsAre(0)));
  EXPECT_THAT(ask(readOf(0, 1)).at(0).rows, ElementsAre(ElementsAre(-3)));
  ask(pushOf(1, 1, 0));
  EXPECT_FALSE(part_->hasFormer());
  EXPECT_EQ(ask(readOf(0, 0)).at(0).code, RowAnswer::Code::kRefused);
  EXPECT_THAT(ask(readOf(0, 1)).at(0).rows, ElementsAre(ElementsAre(-3)));
}

// For an evaluation that others do not wait for; gradients are of a certain step.
TEST_F(RowStepsTest, RowsAreReadAsTheyAreWhateverTheirVersion) {
  EXPECT_THAT(ask(readOf(0, kNewestRows)).at(0).rows, ElementsAre(ElementsAre(0)));
  ask(pushOf(0, 0, 4));
  ask(pushOf(1, 0, 8));
  const auto answers = ask(readOf(0, kNewestRows));
  EXPECT_EQ(answers.at(0).version, 1);
  EXPECT_THAT(answers.at(0).rows, ElementsAre(ElementsAre(-3)));
  RowRequest push = pushOf(0, 1, 4);
  push.version = kNewestRows;
  EXPECT_EQ(ask(std::move(push)).at(0).code, RowAnswer::Code::kRefused);
}

TEST_F(RowStepsTest, WhoAsksAgainIsCountedOnceAndAnsweredOnce) {
  ask(pushOf(0, 0, 4));
  ask(pushOf(0, 0, 4));
  const auto answers = ask(pushOf(1, 0, 8));
  EXPECT_THAT(callsOf(answers), ElementsAre(2, 3));
  EXPECT_THAT(answers[0].rows, ElementsAre(ElementsAre(-3)));
  // And again, when it is taken.
  EXPECT_THAT(ask(pushOf(1, 0, 8)).at(0).rows, ElementsAre(ElementsAre(-3)));
  EXPECT_EQ(part_->version(), 1);
}

TEST_F(RowStepsTest, AnEpochThatBeginsBehindAStepThatIsTakenHereTakesItOnce) {
  ask(pushOf(0, 0, 4));
  ask(pushOf(1, 0, 8));
  std::vector<RowAnswer> sealed;
  part_->seal(sealed);
  open(2, 0);
  EXPECT_THAT(ask(readOf(0, 0)).at(0).rows, ElementsAre(ElementsAre(0)));
  EXPECT_THAT(ask(pushOf(1, 0, 99)).at(0).rows, ElementsAre(ElementsAre(-3)));
  EXPECT_THAT(ask(pushOf(0, 0, 99)).at(0).rows, ElementsAre(ElementsAre(-3)));
  ask(pushOf(0, 1, 4));
  EXPECT_THAT(ask(pushOf(1, 1, 0)).at(0).rows, ElementsAre(ElementsAre(-4)));
}

TEST_F(RowStepsTest, WhatWaitsWhenAnEpochEndsIsAnsweredAndDropped) {
  ask(pushOf(0, 0, 4));
  std::vector<RowAnswer> sealed;
  part_->seal(sealed);
  ASSERT_THAT(callsOf(sealed), ElementsAre(1));
  EXPECT_EQ(sealed[0].code, RowAnswer::Code::kEpochOver);
  EXPECT_EQ(ask(pushOf(1, 0, 8)).at(0).code, RowAnswer::Code::kEpochOver);
  open(2, 0);
  ask(pushOf(1, 0, 8));
  EXPECT_EQ(part_->version(), 0) << "rank 0 has not brought anything in this epoch";
  ask(pushOf(0, 0, 0));
  EXPECT_EQ(part_->version(), 1);
}

TEST_F(RowStepsTest, AnEpochThatItDoesNotHoldDoesNotOpen) {
  ask(pushOf(0, 0, 4));
  ask(pushOf(1, 0, 8));
  ask(pushOf(1, 1, 8));
  std::vector<RowAnswer> sealed;
  part_->seal(sealed);
  plan_.first_step = 0;
  EXPECT_TRUE(absl::IsFailedPrecondition(part_->open(2, plan_)));
  plan_.first_step = 2;
  EXPECT_TRUE(absl::IsFailedPrecondition(part_->open(2, plan_)));
  plan_.first_step = 1;
  EXPECT_TRUE(part_->open(2, plan_).ok());
}

// The last step may have samples for the first ranks only; the others are told the version.
TEST_F(RowStepsTest, RanksWithoutSamplesAreNotWaitedFor) {
  std::vector<RowAnswer> sealed;
  part_->seal(sealed);
  plan_.end_position = 1;
  open(2, 0);
  EXPECT_THAT(ask(readOf(1, 1)), ElementsAre());
  RowRequest last = pushOf(0, 0, 5);
  last.push.samples = 1;
  const auto answers = ask(last);
  EXPECT_THAT(callsOf(answers), ElementsAre(1, 2));
  EXPECT_THAT(answers[0].rows, ElementsAre(ElementsAre(-5)));
  EXPECT_THAT(ask(readOf(1, 2)).at(0).message, HasSubstr("rows of version 2"));
}

// Two of three ranks make the step; the third comes too late, and asks for what there is.
TEST_F(RowStepsTest, WithBackupWorkersTheFirstGradientsCount) {
  std::vector<RowAnswer> sealed;
  part_->seal(sealed);
  plan_.ranks = 3;
  plan_.backup_workers = 1;
  plan_.step_samples = 3 * kSamples;
  open(2, 0);
  const auto placed = [&](int rank, int place, float gradient) {
    RowRequest push = pushOf(rank, 0, gradient);
    push.place = place;
    return push;
  };
  EXPECT_THAT(ask(pushOf(1, 0, 100)).at(0).message, HasSubstr("no place in step 0"));
  EXPECT_THAT(ask(placed(2, 0, 4)), ElementsAre());
  EXPECT_THAT(ask(readOf(1, 1)), ElementsAre());
  EXPECT_THAT(part_->giveUp(call_)->message, HasSubstr("step 0 waits for rows of 1 of 2 workers"));
  const auto answers = ask(placed(0, 1, 8));
  EXPECT_THAT(callsOf(answers), ElementsAre(2, 4));
  EXPECT_THAT(answers[0].rows, ElementsAre(ElementsAre(-3)));  // (4 + 8) / 4 samples
  EXPECT_THAT(ask(readOf(1, 1)).at(0).rows, ElementsAre(ElementsAre(-3)));
}

TEST_F(RowStepsTest, WhatIsNotFiniteEndsTheStepAndIsNamed) {
  ask(pushOf(0, 0, 4));
  EXPECT_THAT(ask(pushOf(1, 0, std::numeric_limits<float>::infinity())), ElementsAre());
  EXPECT_EQ(std::string(part_->failure().message()),
            "table user: the gradient of id 7 is not finite");
  EXPECT_EQ(part_->version(), 0);
  EXPECT_EQ(part_->table(0).size(), 0);
}

TEST_F(RowStepsTest, RefusesWhatMakesNoSense) {
  struct Case {
    void (*spoil)(RowRequest&);
    const char* message;
  };
  const std::vector<Case> cases = {
      {[](RowRequest& r) { r.rank = 2; }, "gradients of rank 2, which has no samples in step 0"},
      {[](RowRequest& r) { r.rank = -1; }, "gradients of rank -1"},
      {[](RowRequest& r) { r.push.samples = 0; }, "gradients of no samples"},
      {[](RowRequest& r) { r.step = 1; }, "gradients of step 1 for rows of version 1, it is 0"},
      {[](RowRequest& r) {
         r.step = -1;
         r.version = 0;
       },
       "gradients of step -1"},
      {[](RowRequest& r) { r.version = 2; }, "rows of version 2 are asked for, there are 0 to 1"},
      {[](RowRequest& r) { r.version = 0; }, "gradients of step 0 for rows of version 0, it is 0"},
      {[](RowRequest& r) { r.ids.clear(); }, "rows of 0 tables are asked for, there are 1"},
      {[](RowRequest& r) {
         r.ids[0] = {7, 7};
       },
       "table user: id 7 is out of order"},
      {[](RowRequest& r) { r.gradients->clear(); }, "gradients of 0 tables, there are 1"},
      {[](RowRequest& r) {
         r.gradients->at(0).ids = {7, 7};
       },
       "2 ids with 1 counts"},
  };
  for (const Case& c : cases) {
    RowRequest request = pushOf(1, 0, 8);
    c.spoil(request);
    const auto answers = ask(request);
    ASSERT_EQ(answers.size(), 1U) << c.message;
    EXPECT_EQ(answers[0].code, RowAnswer::Code::kRefused);
    EXPECT_THAT(answers[0].message, HasSubstr(c.message));
  }
  EXPECT_EQ(part_->version(), 0);
}

// Row 7 is read by both ranks in each step and once more; the table is counted on in a new part.
TEST_F(RowStepsTest, WhatIsAskedIsCounted) {
  ask(pushOf(0, 0, 4));
  ask(pushOf(0, 0, 4));  // again: the first one's answer is not given
  ask(pushOf(1, 0, 8));
  ask(readOf(0, 1));
  EXPECT_EQ(part_->meter(0).counts().pushed, 2U);
  EXPECT_EQ(part_->meter(0).counts().pulled, 3U);
  EXPECT_EQ(part_->meter(0).counts().created, 1U);
  ask(pushOf(0, 1, 0));
  ask(pushOf(1, 1, 0));
  EXPECT_EQ(part_->meter(0).counts().created, 1U);

  RowSteps next(oneTable(), PartitionRange{});
  next.takeMeters(*part_);
  EXPECT_EQ(next.meter(0).counts().pushed, 4U);
  EXPECT_EQ(next.meter(0).counts().pulled, 5U);
  EXPECT_EQ(next.table(0).size(), 0);
}

// A partition of a table of one row may have 17 (and six standard deviations of 0.001).
TEST_F(RowStepsTest, RefusedGradientsAreCounted) {
  std::vector<RowTableConfig> tables = oneTable();
  tables[0].options.max_rows = 1;
  tables[0].options.on_full = RowTableOptions::OnFull::kRefuseNew;
  RowSteps part(tables, PartitionRange{0, 1});
  plan_.ranks = 1;
  plan_.first_step = 0;
  ASSERT_TRUE(part.open(1, plan_).ok());
  const RowOrder order(saltOf("user"));
  RowRequest request = readOf(0, 1);
  request.ids = {{}};
  request.push.samples = 1;
  request.gradients.emplace(1);
  RowGradients& brought = request.gradients->front();
  for (std::uint64_t id = 0; brought.ids.size() < 100; ++id) {
    if (order.partition(id) != 0) continue;
    brought.ids.push_back(id);
    brought.counts.push_back(1);
    brought.sums.push_back(1);
  }
  std::vector<RowAnswer> answers;
  part.onRequest(request, 1, answers);
  ASSERT_EQ(answers.size(), 1U);
  ASSERT_EQ(answers[0].code, RowAnswer::Code::kRows) << answers[0].message;
  const auto cap = static_cast<std::uint64_t>(partitionCap(1));
  EXPECT_EQ(part.meter(0).counts().created, cap);
  EXPECT_EQ(part.meter(0).counts().refused, 100 - cap);
  EXPECT_EQ(part.meter(0).counts().pushed, 100U);
}

}  // namespace
}  // namespace trainyard::runtime::rows
