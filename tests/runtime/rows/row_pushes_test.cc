#include "runtime/rows/row_pushes.h"

#include <limits>
#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/rows/one_table.h"

namespace trainyard::runtime::rows {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RowPushesTest : public testing::Test {
 protected:
  RowPushesTest() { begin(1); }
  void begin(int aggregate) {
    part_ = std::make_unique<RowPushes>(oneTable(), PartitionRange{}, aggregate);
    open(1);
  }
  void open(std::int64_t epoch) {
    ASSERT_TRUE(part_->open(epoch, StepPlan()).ok());
    epoch_ = epoch;
  }
  RowRequest read() const { return readOfRow(epoch_, 0, kNewestRows); }
  RowRequest pushOf(std::uint32_t worker, std::int64_t number, float gradient) {
    RowRequest push = pushOfRow(epoch_, worker, number, ticket_, gradient);
    push.step = ticket_++;
    return push;
  }
  RowAnswer ask(RowRequest request) {
    std::vector<RowAnswer> answers;
    part_->onRequest(std::move(request), 1, answers);
    EXPECT_EQ(answers.size(), 1) << "everybody is answered at once";
    return answers.at(0);
  }
  std::vector<std::vector<float>> rowsAfter(RowRequest request) {
    return ask(std::move(request)).rows;
  }

  std::unique_ptr<RowPushes> part_;
  std::int64_t epoch_ = 0;
  std::int64_t ticket_ = 0;
};

TEST_F(RowPushesTest, APushIsTakenAtOnceAndAnsweredWithItsOutcome) {
  EXPECT_THAT(rowsAfter(read()), ElementsAre(ElementsAre(0)));
  EXPECT_EQ(part_->table(0).size(), 0) << "what is read is not created";
  EXPECT_THAT(rowsAfter(pushOf(0, 1, 4)), ElementsAre(ElementsAre(-2)));
  const RowAnswer second = ask(pushOf(1, 1, 8));
  EXPECT_THAT(second.rows, ElementsAre(ElementsAre(-6)));
  EXPECT_EQ(second.version, 2);
  EXPECT_EQ(part_->table(0).rows(RowOrder(saltOf("user")).partition(7)).at(0).count, 2);
}

TEST_F(RowPushesTest, APushThatComesAgainIsTakenOnceUnderALaterEpochToo) {
  const RowRequest push = pushOf(0, 1, 4);
  ask(push);
  EXPECT_THAT(rowsAfter(push), ElementsAre(ElementsAre(-2)));
  std::vector<RowAnswer> nobody;
  part_->seal(nobody);
  EXPECT_EQ(ask(push).code, RowAnswer::Code::kEpochOver);
  open(2);
  RowRequest again = push;
  again.epoch = 2;
  EXPECT_THAT(rowsAfter(again), ElementsAre(ElementsAre(-2)));
  EXPECT_EQ(part_->version(), 1);
}

TEST_F(RowPushesTest, AnotherLifeOfAWorkerCountsAnew) {
  ask(pushOf(0, 5, 4));
  RowRequest reborn = pushOf(0, 1, 4);
  reborn.push.start = 2;
  EXPECT_THAT(rowsAfter(reborn), ElementsAre(ElementsAre(-4)));
}

TEST_F(RowPushesTest, SeveralPushesMakeAnUpdateOfTheirMean) {
  begin(2);
  EXPECT_THAT(rowsAfter(pushOf(0, 1, 4)), ElementsAre(ElementsAre(0)));
  EXPECT_THAT(rowsAfter(pushOf(1, 1, 8)), ElementsAre(ElementsAre(-3)));
  EXPECT_EQ(part_->version(), 1);
}

TEST_F(RowPushesTest, WhatWaitsForOthersIsTakenWhenNoneCome) {
  begin(2);
  ask(pushOf(0, 1, 4));
  part_->settle(5);
  EXPECT_EQ(part_->version(), 5);
  EXPECT_THAT(rowsAfter(read()), ElementsAre(ElementsAre(-2)));
}

TEST_F(RowPushesTest, ItKnowsWhichSamplesAreInIt) {
  ask(pushOf(0, 1, 4));
  ask(pushOf(1, 1, 4));
  EXPECT_TRUE(part_->tickets().contains(1));
  EXPECT_FALSE(part_->tickets().contains(2));
  EXPECT_TRUE(part_->samples().contains(3));
  EXPECT_FALSE(part_->samples().contains(4));
}

TEST_F(RowPushesTest, AGradientThatIsNotFiniteChangesNothingAndEndsTheJob) {
  ask(pushOf(0, 1, 4));
  const RowAnswer answer = ask(pushOf(0, 2, std::numeric_limits<float>::infinity()));
  EXPECT_EQ(answer.code, RowAnswer::Code::kNotReady);
  EXPECT_THAT(answer.message, HasSubstr("user"));
  EXPECT_THAT(std::string(part_->failure().message()), HasSubstr("7"));
  EXPECT_EQ(part_->version(), 1);
  EXPECT_EQ(ask(pushOf(1, 1, 4)).code, RowAnswer::Code::kNotReady);
}

TEST_F(RowPushesTest, GradientsOfNoSamplesAreRefused) {
  RowRequest push = pushOf(0, 1, 4);
  push.push.samples = 0;
  EXPECT_EQ(ask(push).code, RowAnswer::Code::kRefused);
}

}  // namespace
}  // namespace trainyard::runtime::rows
