// Parts of tables that a server copies while their holder takes steps.
#include <map>
#include <set>

#include "tests/runtime/ps/two_row_shards.h"

namespace trainyard::runtime::ps {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const v1::Incarnation kHolder = incarnation(1, 1);

// ps-1 copies ps-0's parts in the second epoch, and keeps replicas of none.
class RowShardCopies : public TwoRowShards {
 protected:
  RowShardCopies() {
    takeStep(0);
    seal();
    shards_[1]->replicate({}, true);
    shards_[0]->replicate({}, true, {numberOf(kPart)});
    copy({kPart});
  }
  std::uint32_t numberOf(std::size_t part) const { return grid_.numberOf(part); }
  // In the epoch that is prepared.
  void copy(const std::vector<std::size_t>& parts) {
    std::vector<std::uint32_t> numbers;
    std::map<std::uint32_t, std::set<int>> followers;
    for (const std::size_t part : parts) {
      numbers.push_back(numberOf(part));
      followers[numberOf(part)] = {1};
    }
    shards_[1]->copy(numbers, followers);
    shards_[0]->copy({}, followers);
  }
  void begin(std::int64_t step) {
    open(step);
    for (const auto& shard : shards_) shard->release();
  }
  // As the server does while the epoch runs. Whether all of it came, and not what was behind only.
  bool follow() {
    auto given =
        shards_[0]->giveFollower(numberOf(kPart), 1, shards_[1]->markOf(numberOf(kPart), kHolder));
    EXPECT_TRUE(given.ok()) << given.status();
    const bool whole = !given->stores.empty();
    auto unpacked = shards_[1]->unpack(numberOf(kPart), *std::move(given));
    EXPECT_TRUE(unpacked.ok()) << unpacked.status();
    const Status taken = shards_[1]->takeOver(numberOf(kPart), *std::move(unpacked), &kHolder);
    EXPECT_TRUE(taken.ok()) << taken;
    return whole;
  }
  void step(std::int64_t step) {
    for (const int rank : {0, 1}) push(kPart, step, rank, static_cast<float>(step + rank));
    EXPECT_THAT(shards_[0]->takeUpdates(), IsEmpty()) << "nobody keeps its replica";
  }
};

TEST_F(RowShardCopies, ACopyIsNothingToOthersUntilItIsTakenOver) {
  begin(1);
  EXPECT_TRUE(follow());
  step(1);
  step(2);
  EXPECT_FALSE(follow()) << "the updates alone";
  EXPECT_EQ(point(1, kPart), -1);
  EXPECT_THAT(contents(1, kPart), HasSubstr("does not hold part"));
  EXPECT_THAT(replicasOf(1, 1), Not(Contains(numberOf(kPart))));
  v1::ShardTable table;
  shards_[1]->fillTables(table);
  EXPECT_EQ(table.tables(0).replica_rows(), 0);

  step(3);
  seal();
  ps_of_part_[kPart] = 1;
  shards_[1]->assign(ps_of_part_);
  EXPECT_EQ(shards_[1]->lowestVersion(), 1) << "of its other parts: it is not here yet";
  const std::uint64_t mark = shards_[1]->markOf(numberOf(kPart), kHolder);
  const auto given = shards_[0]->giveFollower(numberOf(kPart), 1, mark);
  ASSERT_TRUE(given.ok());
  EXPECT_THAT(given->stores, IsEmpty());
  EXPECT_EQ(given->updates.size(), 1U);
  ASSERT_TRUE(takeOver(1, numberOf(kPart), *given).ok());
  EXPECT_EQ(contents(1, kPart), contents(0, kPart));
  EXPECT_EQ(point(1, kPart), 4);
  EXPECT_EQ(shards_[1]->markOf(numberOf(kPart), kHolder), 0U) << "it is no copy any more";
}

TEST_F(RowShardCopies, ACopyOfAnotherProcessIsAskedForAnew) {
  begin(1);
  follow();
  EXPECT_NE(shards_[1]->markOf(numberOf(kPart), kHolder), 0U);
  EXPECT_EQ(shards_[1]->markOf(numberOf(kPart), incarnation(1, 2)), 0U);
  EXPECT_EQ(shards_[1]->markOf(numberOf(kPart), incarnation(2, 1)), 0U);
  EXPECT_EQ(shards_[1]->markOf(numberOf(kOthers), kHolder), 0U);
}

// Whoever it was copied for follows it no more.
TEST_F(RowShardCopies, AnEpochThatDoesNotCopyItForgetsTheCopy) {
  begin(1);
  follow();
  seal();
  copy({});
  EXPECT_NE(shards_[1]->markOf(numberOf(kPart), kHolder), 0U) << "the epoch may come to nothing";
  begin(1);
  EXPECT_EQ(shards_[1]->markOf(numberOf(kPart), kHolder), 0U);
  seal();
  copy({kPart});
  begin(1);
  EXPECT_TRUE(follow());
}

TEST_F(RowShardCopies, AnEpochThatGoesOnWithItKeepsTheCopy) {
  begin(1);
  follow();
  step(1);
  seal();
  copy({kPart});
  begin(1);
  EXPECT_FALSE(follow());
}

// It was a replica, and lacks what the part has taken since.
TEST_F(RowShardCopies, WhatWasHereBeforeIsNoCopy) {
  EXPECT_EQ(point(1, kPart), 1) << "until the epoch has begun";
  begin(1);
  EXPECT_EQ(point(1, kPart), -1);
  EXPECT_THAT(replicasOf(1, 1), Not(Contains(numberOf(kPart))));
  EXPECT_TRUE(follow());
}

TEST_F(RowShardCopies, NobodyCanBeginWithACopy) {
  begin(1);
  follow();
  seal();
  ps_of_part_[kPart] = 1;
  shards_[1]->assign(ps_of_part_);
  const Status opened = shards_[1]->open(9, planFor(1, 2));
  EXPECT_TRUE(absl::IsFailedPrecondition(opened)) << opened;
}

TEST_F(RowShardCopies, UpdatesOfWhichOneIsMissingAreRefused) {
  for (const std::optional<int> aggregate : {std::optional<int>(), std::optional(1)}) {
    start(aggregate);
    seal();
    shards_[1]->replicate({}, true);
    shards_[0]->replicate({}, true, {numberOf(kPart)});
    copy({kPart});
    begin(0);
    follow();
    for (std::int64_t at = 0; at < 3; ++at) step(at);
    const std::uint64_t mark = shards_[1]->markOf(numberOf(kPart), kHolder);
    auto given = shards_[0]->giveFollower(numberOf(kPart), 1, mark);
    ASSERT_TRUE(given.ok());
    EXPECT_EQ(given->updates.size(), aggregate ? 6U : 3U) << "pushes, or steps of two";
    given->updates.erase(given->updates.begin() + 1);
    EXPECT_TRUE(absl::IsInvalidArgument(takeOver(1, numberOf(kPart), *given)));
  }
}

TEST_F(RowShardCopies, UpdatesOfWhatIsNotHereAreRefused) {
  begin(1);
  follow();
  step(1);
  auto given =
      shards_[0]->giveFollower(numberOf(kPart), 1, shards_[1]->markOf(numberOf(kPart), kHolder));
  ASSERT_TRUE(given.ok());
  seal();
  copy({});
  begin(1);
  shards_[1]->replicate({numberOf(kPart)}, true);
  EXPECT_TRUE(absl::IsInvalidArgument(takeOver(1, numberOf(kPart), *given)));
}

}  // namespace
}  // namespace trainyard::runtime::ps
