// Parts that are copied while they take updates.
#include <memory>
#include <string>
#include <vector>

#include "base/core/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/rows/row_pushes.h"
#include "runtime/rows/row_steps.h"
#include "tests/runtime/rows/replica_tables.h"

namespace trainyard::runtime::rows {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;

constexpr std::size_t kMuch = 1 << 20;

// Told apart by its point; 12 bytes and a float for each id.
std::shared_ptr<const PartUpdate> updateAt(std::int64_t point, std::size_t ids = 1) {
  auto update = std::make_shared<PartUpdate>();
  update->point = point;
  update->gradients.resize(1);
  update->gradients[0].ids.resize(ids);
  update->gradients[0].counts.resize(ids, 1);
  update->gradients[0].sums.resize(ids);
  return update;
}

std::optional<std::vector<std::int64_t>> pointsSince(PartLog& log, int follower,
                                                     std::uint64_t mark) {
  const auto updates = log.since(follower, mark);
  if (!updates) return std::nullopt;
  std::vector<std::int64_t> points;
  for (const auto& update : *updates) points.push_back(update->point);
  return points;
}

TEST(PartLog, KeepsNothingWhileNobodyFollows) {
  PartLog log;
  log.add(updateAt(0), kMuch);
  EXPECT_EQ(log.bytes(), 0U);
  EXPECT_EQ(pointsSince(log, 1, log.mark()), std::nullopt);
  EXPECT_FALSE(log.followed());
}

TEST(PartLog, GivesWhatCameBehindAMark) {
  PartLog log;
  const std::uint64_t begin = log.begin(1, 1);
  EXPECT_THAT(pointsSince(log, 1, begin), Optional(IsEmpty()));
  for (int point = 0; point < 3; ++point) log.add(updateAt(point), kMuch);
  EXPECT_THAT(pointsSince(log, 1, begin), Optional(ElementsAre(0, 1, 2)));
  EXPECT_THAT(pointsSince(log, 1, begin), Optional(ElementsAre(0, 1, 2)))
      << "an answer may be lost";
  EXPECT_THAT(pointsSince(log, 1, begin + 2), Optional(ElementsAre(2)));
  EXPECT_EQ(log.mark(), begin + 3);
  EXPECT_EQ(log.bytes(), 16U) << "what all have read is forgotten";
  EXPECT_EQ(pointsSince(log, 1, begin + 1), std::nullopt);
  EXPECT_EQ(pointsSince(log, 1, begin + 4), std::nullopt) << "there is no such mark";
  EXPECT_EQ(pointsSince(log, 1, 0), std::nullopt);
}

TEST(PartLog, WaitsForTheSlowestFollower) {
  PartLog log;
  const std::uint64_t first = log.begin(1, 1);
  log.add(updateAt(0), kMuch);
  const std::uint64_t second = log.begin(2, 2);
  EXPECT_EQ(second, first + 1) << "the log is the same";
  log.add(updateAt(1), kMuch);
  EXPECT_THAT(pointsSince(log, 2, second), Optional(ElementsAre(1)));
  EXPECT_THAT(pointsSince(log, 1, first), Optional(ElementsAre(0, 1)));
  log.keepFollowers({2});
  EXPECT_EQ(log.bytes(), 16U);
  EXPECT_EQ(pointsSince(log, 1, first), std::nullopt)
      << "it follows no more, and the other needs less";
  log.keepFollowers({});
  EXPECT_FALSE(log.followed());
  EXPECT_EQ(log.bytes(), 0U);
}

// As of a part that has been dropped and is here again.
TEST(PartLog, AMarkOfAnotherLifeIsKnownAsSuch) {
  PartLog log;
  const std::uint64_t former = log.begin(1, 1);
  log.add(updateAt(0), kMuch);
  log.keepFollowers({});
  PartLog another;
  const std::uint64_t mark = another.begin(1, 2);
  another.add(updateAt(7), kMuch);
  EXPECT_EQ(pointsSince(another, 1, former), std::nullopt);
  EXPECT_EQ(pointsSince(another, 1, former + 1), std::nullopt);
  EXPECT_THAT(pointsSince(another, 1, mark), Optional(ElementsAre(7)));
}

TEST(PartLog, IsGivenUpWhereItGrowsLargerThanTheRows) {
  PartLog log;
  const std::uint64_t mark = log.begin(1, 1);
  log.add(updateAt(0, 4), 100);
  EXPECT_TRUE(log.followed());
  log.add(updateAt(1, 3), 100);
  EXPECT_FALSE(log.followed());
  EXPECT_EQ(log.bytes(), 0U);
  EXPECT_EQ(pointsSince(log, 1, mark), std::nullopt);
}

// A part and its followers; what both modes have in common.
template <typename Part>
class Followed : public testing::Test {
 public:
  std::unique_ptr<Part> make(int aggregate);
  void begin(int aggregate) {
    part_ = make(aggregate);
    copy_ = make(aggregate);
    mark_ = 0;
    ASSERT_TRUE(part_->open(1, planOfOneRank()).ok());
  }
  void takeUpdate() {
    RowRequest push = nextPush();
    push.ids.assign(tables_.configs.size(), {});
    push.gradients = tables_.gradients(random_);
    ++taken_;
    ASSERT_EQ(askedOf(*part_, push, static_cast<CallId>(taken_)).size(), 1U);
  }
  RowRequest nextPush();
  // Asks on; how many updates came, or -1: all of it.
  int follow() {
    return follow([] {});
  }
  // The same, with `between` before each partition of all of it.
  template <typename Between>
  int follow(Between between) {
    GivenPart given = readBy(*part_, part_->giveFollower(1, mark_, ++life_), between);
    const int updates = given.stores.empty() ? static_cast<int>(given.updates.size()) : -1;
    EXPECT_NE(given.mark, 0U);
    mark_ = given.mark;
    if (updates < 0) copy_ = make(aggregate_);
    const Status followed = copy_->follow(std::move(given));
    EXPECT_TRUE(followed.ok()) << followed;
    return updates;
  }
  bool equal() const {
    return copy_->point() == part_->point() && copy_->version() == part_->version() &&
           bitsOf(*copy_) == bitsOf(*part_);
  }

  const ManyTables tables_;
  Rng random_{7};
  int aggregate_ = 1;
  std::unique_ptr<Part> part_;
  std::unique_ptr<Part> copy_;
  std::uint64_t mark_ = 0;
  std::uint64_t life_ = 0;
  std::int64_t taken_ = 0;
};

template <>
std::unique_ptr<RowSteps> Followed<RowSteps>::make(int /*aggregate*/) {
  return std::make_unique<RowSteps>(tables_.configs, ManyTables::kRange);
}
template <>
std::unique_ptr<RowPushes> Followed<RowPushes>::make(int aggregate) {
  aggregate_ = aggregate;
  return std::make_unique<RowPushes>(tables_.configs, ManyTables::kRange, aggregate);
}
template <>
RowRequest Followed<RowSteps>::nextPush() {
  return stepOfRow(1, 0, part_->version(), 2, 0);
}
template <>
RowRequest Followed<RowPushes>::nextPush() {
  RowRequest push = pushOfRow(1, 0, taken_ + 1, taken_, 0);
  push.step = taken_ / 2;
  return push;
}

using FollowedSteps = Followed<RowSteps>;
using FollowedPushes = Followed<RowPushes>;

template <typename Bench>
void aCopyIsEqualAsOftenAsItAsks(Bench& b) {
  for (const int aggregate : {1, 3}) {
    b.begin(aggregate);
    for (int i = 0; i < 5; ++i) b.takeUpdate();
    EXPECT_EQ(b.follow(), -1);
    EXPECT_TRUE(b.equal());
    for (int round = 0; round < 40; ++round) {
      const int updates = static_cast<int>(b.random_.below(5));
      for (int i = 0; i < updates; ++i) b.takeUpdate();
      EXPECT_EQ(b.follow(), updates);
      EXPECT_TRUE(b.equal()) << aggregate << ", " << round;
    }
  }
}
TEST_F(FollowedSteps, ACopyIsEqualAsOftenAsItAsks) {
  aCopyIsEqualAsOftenAsItAsks(*this);
}
TEST_F(FollowedPushes, ACopyIsEqualAsOftenAsItAsks) {
  aCopyIsEqualAsOftenAsItAsks(*this);
}

// Where all servers call what they hold by a common version; the next push follows.
TEST_F(FollowedPushes, ASettledVersionIsFollowed) {
  begin(3);
  for (int i = 0; i < 4; ++i) takeUpdate();
  follow();
  for (int round = 0; round < 6; ++round) {
    for (int i = 0; i < round % 3; ++i) takeUpdate();
    part_->settle(part_->version() + 2);
    for (int i = 0; i < round % 2; ++i) takeUpdate();
    EXPECT_GE(follow(), 0);
    EXPECT_TRUE(equal()) << round;
  }
}

template <typename Bench>
void whatCannotBeFollowedIsGivenWhole(Bench& b) {
  b.begin(1);
  b.takeUpdate();
  b.follow();
  b.takeUpdate();
  b.part_->keepFollowers({});
  b.takeUpdate();
  EXPECT_EQ(b.follow(), -1);
  EXPECT_TRUE(b.equal());
  b.part_->keepFollowers({1});
  b.takeUpdate();
  EXPECT_EQ(b.follow(), 1);
  EXPECT_TRUE(b.equal());
}
TEST_F(FollowedSteps, WhatCannotBeFollowedIsGivenWhole) {
  whatCannotBeFollowedIsGivenWhole(*this);
}
TEST_F(FollowedPushes, WhatCannotBeFollowedIsGivenWhole) {
  whatCannotBeFollowedIsGivenWhole(*this);
}

template <typename Test>
void updatesMayComeWhileRowsAreRead(Test& test) {
  for (const int before : {0, 1, 6}) {
    test.begin(3);
    for (int i = 0; i < before; ++i) test.takeUpdate();
    int taken = 0;
    const auto sometimes = [&] {
      if (test.random_.below(4) != 0) return;
      test.takeUpdate();
      ++taken;
    };
    EXPECT_EQ(test.follow(sometimes), -1);
    EXPECT_GT(taken, 0);
    EXPECT_FALSE(test.equal());
    EXPECT_EQ(test.follow(), taken);
    EXPECT_TRUE(test.equal());
  }
}
TEST_F(FollowedSteps, UpdatesMayComeWhileRowsAreRead) {
  updatesMayComeWhileRowsAreRead(*this);
}
TEST_F(FollowedPushes, UpdatesMayComeWhileRowsAreRead) {
  updatesMayComeWhileRowsAreRead(*this);
}

// Of pushes their count says so: RowShard compares marks.
TEST_F(FollowedSteps, UpdatesOfWhichSomeAreMissingAreRefused) {
  begin(1);
  takeUpdate();
  follow();
  for (int i = 0; i < 3; ++i) takeUpdate();
  GivenPart given = part_->giveFollower(1, mark_, 9).given;
  given.updates.erase(given.updates.begin() + 1);
  EXPECT_TRUE(absl::IsInvalidArgument(copy_->follow(given)));
  given.updates.clear();
  EXPECT_TRUE(absl::IsInvalidArgument(copy_->follow(std::move(given)))) << "the newest";
}

// What is given whole is what a new holder takes over: both versions can be read, also by who then
// asks on.
TEST_F(FollowedSteps, ACopyCanBeginWhereItsPartCan) {
  begin(1);
  for (int i = 0; i < 3; ++i) takeUpdate();
  for (int round = 0; round < 3; ++round) {
    follow();
    StepPlan plan = planOfOneRank();
    for (const std::int64_t behind : {0, 1}) {
      plan.first_step = part_->version() - behind;
      EXPECT_TRUE(copy_->canBegin(plan).ok()) << round << " " << behind;
    }
    takeUpdate();
  }
}

}  // namespace
}  // namespace trainyard::runtime::rows
