// Replicas of parts with common steps: ahead of everybody who is told of a step, equal to their
// parts bit by bit, and enough to go on from.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/core/rng.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/rows/row_steps.h"
#include "tests/runtime/rows/replica_tables.h"

namespace trainyard::runtime::rows {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kBegin = 100;

// Mode Sync: steps of two ranks, two samples each.
class SteppedPartTest : public testing::Test {
 protected:
  SteppedPartTest() {
    plan_.step_samples = 4;
    plan_.rank_samples = 2;
    plan_.steps = 1000;
    plan_.ranks = 2;
    part_.setGuarded(true);
    open(part_, 0);
    many_.setVersion(kBegin);
    many_replica_.setVersion(kBegin);
    many_.setGuarded(true);
    open(many_, kBegin);
  }
  Status canOpen(RowSteps& part, std::int64_t step) {
    plan_.first_step = step;
    return part.open(epoch_, plan_);
  }
  void open(RowSteps& part, std::int64_t step) { ASSERT_TRUE(canOpen(part, step).ok()) << step; }
  RowRequest readOf(int rank, std::int64_t version) const {
    return readOfRow(epoch_, rank, version);
  }
  RowRequest pushOf(int rank, std::int64_t step, float gradient) const {
    return stepOfRow(epoch_, rank, step, 2, gradient);
  }
  std::vector<RowAnswer> ask(RowRequest request) {
    return askedOf(part_, std::move(request), ++call_);
  }
  std::vector<RowAnswer> confirm(std::int64_t point) {
    std::vector<RowAnswer> answers;
    part_.onReplicated(point, answers);
    return answers;
  }
  // Both ranks bring some rows of all tables.
  void bringTo(RowSteps& part, std::uint64_t seed) {
    Rng random(seed);
    for (const int rank : {0, 1}) {
      RowRequest push = pushOf(rank, part.version(), 0);
      push.ids.assign(tables_.configs.size(), {});
      push.gradients = tables_.gradients(random);
      askedOf(part, push, ++call_);
    }
  }
  // The next step of many_, which its replica takes too.
  void takeStep() {
    bringTo(many_, ++seed_);
    update_ = sentBy(many_);
    ASSERT_NE(update_, nullptr);
    ASSERT_TRUE(many_replica_.takeAsReplica(update_));
    std::vector<RowAnswer> answers;
    many_.onReplicated(update_->point, answers);
  }
  std::vector<std::vector<float>> rowsAt(RowPart& part, std::int64_t version) {
    RowRequest request = readOf(0, version);
    request.ids = tables_.ids;
    return askedOf(part, request, ++call_).at(0).rows;
  }

  StepPlan plan_;
  RowSteps part_{oneTable(), PartitionRange{}};
  RowSteps replica_{oneTable(), PartitionRange{}};
  const ManyTables tables_;
  RowSteps many_{tables_.configs, ManyTables::kRange};
  RowSteps many_replica_{tables_.configs, ManyTables::kRange};
  std::shared_ptr<const PartUpdate> update_;
  std::int64_t epoch_ = 1;
  CallId call_ = 0;
  std::uint64_t seed_ = 0;
};

TEST_F(SteppedPartTest, NobodyIsToldOfAStepBeforeItsReplicaHasIt) {
  ask(pushOf(0, 0, 4));
  EXPECT_THAT(ask(pushOf(1, 0, 8)), IsEmpty());
  EXPECT_EQ(part_.version(), 1);
  EXPECT_EQ(part_.told(), 0);
  const auto update = sentBy(part_);
  ASSERT_NE(update, nullptr);
  EXPECT_EQ(update->point, 0);
  EXPECT_EQ(update->step, 0);
  EXPECT_EQ(update->push.samples, 4);
  EXPECT_THAT(update->gradients.at(0).sums, ElementsAre(3)) << "the mean";
  EXPECT_EQ(sentBy(part_), nullptr) << "each is sent once";

  EXPECT_THAT(ask(readOf(0, kNewestRows)), ElementsAre(answeredWith(3, 0)));
  EXPECT_THAT(ask(readOf(0, 0)), ElementsAre(answeredWith(4, 0)));
  EXPECT_THAT(ask(readOf(2, 1)), IsEmpty()) << "waits as the others do";
  EXPECT_THAT(ask(pushOf(0, 1, 1)).at(0).message, HasSubstr("version 2 are asked for"));
  EXPECT_THAT(confirm(0), ElementsAre(answeredWith(1, -3), answeredWith(2, -3),  // 12 / 4 samples
                                      answeredWith(5, -3)));
  EXPECT_EQ(part_.told(), 1);
  EXPECT_THAT(ask(readOf(0, kNewestRows)), ElementsAre(answeredWith(7, -3)));
}

TEST_F(SteppedPartTest, WhoAsksAgainBeforeTheReplicaHasTheStepIsAnsweredOnce) {
  ask(pushOf(0, 0, 4));
  ask(pushOf(1, 0, 8));
  sentBy(part_);
  EXPECT_THAT(ask(pushOf(0, 0, 4)), ElementsAre(answered(1, RowAnswer::Code::kAskedAgain)));
  EXPECT_THAT(ask(pushOf(1, 0, 99)), ElementsAre(answered(2, RowAnswer::Code::kAskedAgain)));
  EXPECT_EQ(sentBy(part_), nullptr);
  EXPECT_THAT(confirm(0), ElementsAre(answeredWith(3, -3), answeredWith(4, -3)));
}

TEST_F(SteppedPartTest, WhoWaitsTooLongIsToldThatItIsForTheReplica) {
  ask(pushOf(0, 0, 4));
  EXPECT_THAT(part_.giveUp(1)->message, HasSubstr("step 0 waits for rows of workers of rank 1"));
  ask(pushOf(0, 0, 4));
  ask(pushOf(1, 0, 8));
  const auto given_up = part_.giveUp(2);
  ASSERT_TRUE(given_up);
  EXPECT_EQ(given_up->code, RowAnswer::Code::kNotReady);
  EXPECT_EQ(given_up->message, "step 0 waits for its replica");
  EXPECT_FALSE(part_.giveUp(2));
  part_.cancel(3);
  EXPECT_THAT(confirm(0), IsEmpty());
  EXPECT_EQ(part_.told(), 1);
}

TEST_F(SteppedPartTest, OnlyTheNewestStepIsConfirmed) {
  ask(pushOf(0, 0, 4));
  EXPECT_THAT(confirm(0), IsEmpty()) << "it is not taken yet";
  ask(pushOf(1, 0, 8));
  for (const std::int64_t other : {-1, 1, 2}) EXPECT_THAT(confirm(other), IsEmpty()) << other;
  EXPECT_EQ(part_.told(), 0);
  EXPECT_EQ(confirm(0).size(), 2U);
  EXPECT_THAT(confirm(0), IsEmpty());
  ask(pushOf(0, 1, 0));
  ask(pushOf(1, 1, 4));
  EXPECT_THAT(confirm(0), IsEmpty()) << "a late word is of the step before";
  EXPECT_EQ(part_.told(), 1);
  EXPECT_THAT(confirm(1), ElementsAre(answeredWith(3, -4), answeredWith(4, -4)));
}

// The replica gets the step from give(), and the next epoch begins at either version.
TEST_F(SteppedPartTest, AnEpochThatEndsBeforeTheReplicaHasTheStepLeavesItToTheNext) {
  ask(pushOf(0, 0, 4));
  ask(pushOf(1, 0, 8));
  std::vector<RowAnswer> sealed;
  part_.seal(sealed);
  EXPECT_THAT(sealed, ElementsAre(answered(1, RowAnswer::Code::kEpochOver),
                                  answered(2, RowAnswer::Code::kEpochOver)));
  EXPECT_EQ(part_.told(), 1);
  EXPECT_THAT(confirm(0), IsEmpty());
  ASSERT_TRUE(replica_.takeOver(part_.give(replica_.point())).ok());
  EXPECT_TRUE(bitsOf(replica_) == bitsOf(part_));
  EXPECT_TRUE(replica_.hasFormer());
  ++epoch_;
  open(part_, 0);
  EXPECT_THAT(ask(readOf(0, 0)), ElementsAre(answeredWith(3, 0)));
  EXPECT_THAT(ask(pushOf(0, 0, 99)), ElementsAre(answeredWith(4, -3))) << "it has the step already";
  ask(pushOf(0, 1, 0));
  EXPECT_THAT(ask(pushOf(1, 1, 4)), IsEmpty()) << "and guards the next";
  EXPECT_EQ(confirm(1).size(), 2U);
}

TEST_F(SteppedPartTest, WithoutAReplicaNothingIsSentAndNobodyWaits) {
  part_.setGuarded(false);
  ask(pushOf(0, 0, 4));
  EXPECT_THAT(ask(pushOf(1, 0, 8)), ElementsAre(answeredWith(1, -3), answeredWith(2, -3)));
  EXPECT_EQ(sentBy(part_), nullptr);
  EXPECT_EQ(part_.told(), 1);
}

TEST_F(SteppedPartTest, AStepThatCannotBeTakenIsNotSent) {
  ask(pushOf(0, 0, 4));
  EXPECT_THAT(ask(pushOf(1, 0, std::numeric_limits<float>::infinity())), IsEmpty());
  EXPECT_FALSE(part_.failure().ok());
  EXPECT_EQ(sentBy(part_), nullptr);
  EXPECT_EQ(part_.told(), 0);
  EXPECT_THAT(confirm(0), IsEmpty());
}

TEST_F(SteppedPartTest, AReplicaIsEqualBitByBit) {
  std::int64_t counted = 0;
  for (int i = 0; i < 80; ++i) {
    ASSERT_NO_FATAL_FAILURE(takeStep());
    ASSERT_TRUE(bitsOf(many_replica_) == bitsOf(many_)) << "step " << i;
    ASSERT_TRUE(bitsOf(many_replica_.give(-1).stores) == bitsOf(many_.give(-1).stores)) << i;
    for (std::size_t s = tables_.configs.size(); s < many_.stores(); ++s)
      counted += many_.store(s).size();
  }
  EXPECT_EQ(many_replica_.version(), kBegin + 80);
  for (const std::size_t t : {0U, 1U, 3U}) EXPECT_GT(many_.meter(t).counts().evicted, 0U) << t;
  EXPECT_GT(counted, 0) << "some ids had no row yet";
}

TEST_F(SteppedPartTest, AReplicaTakesEachStepOnceAndNoneBeforeItsTurn) {
  takeStep();
  const auto first = update_;
  takeStep();
  const std::string bits = bitsOf(many_replica_);
  EXPECT_TRUE(many_replica_.takeAsReplica(update_)) << "its confirmation was lost";
  EXPECT_FALSE(many_replica_.takeAsReplica(first));
  PartUpdate later = *update_;
  later.point = later.step = kBegin + 3;
  EXPECT_FALSE(many_replica_.takeAsReplica(std::make_shared<const PartUpdate>(later)))
      << "it lacks one";
  EXPECT_TRUE(bitsOf(many_replica_) == bits);
  EXPECT_EQ(many_replica_.version(), kBegin + 2);
}

TEST_F(SteppedPartTest, WhatIsGivenIsWhatIsLacking) {
  EXPECT_EQ(many_.give(-1).stores.size(), many_.stores()) << "no step has been taken";
  EXPECT_EQ(many_.give(-1).update, nullptr);
  takeStep();
  const std::string former = bitsOf(many_);
  takeStep();
  const GivenPart nothing = many_.give(kBegin + 2);
  EXPECT_TRUE(nothing.stores.empty() && nothing.update == nullptr);
  EXPECT_EQ(nothing.point, kBegin + 2);
  const GivenPart newest = many_.give(kBegin + 1);
  EXPECT_TRUE(newest.stores.empty());
  ASSERT_NE(newest.update, nullptr);
  EXPECT_EQ(newest.update->step, kBegin + 1);
  EXPECT_EQ(newest.version, kBegin + 1) << "of what it comes behind";
  for (const std::int64_t known : {std::int64_t{-1}, kBegin, kBegin + 3}) {
    const GivenPart all = many_.give(known);
    EXPECT_TRUE(bitsOf(all.stores) == former) << known;
    EXPECT_EQ(all.update, newest.update);
    EXPECT_EQ(all.point, kBegin + 1);
  }
  RowRequest next = pushOf(0, kBegin + 2, 0);
  next.ids.assign(4, {});
  next.gradients.emplace(4);
  askedOf(many_, next, ++call_);  // all have reached the version: the one before it is forgotten
  EXPECT_EQ(many_.give(kBegin + 1).update, nullptr);
  EXPECT_TRUE(bitsOf(many_.give(kBegin + 1).stores) == bitsOf(many_));
  EXPECT_EQ(many_.give(kBegin + 1).version, kBegin + 2);
  RowSteps taken(tables_.configs, ManyTables::kRange);
  ASSERT_TRUE(taken.takeOver(many_.give(-1)).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(canOpen(taken, kBegin + 1)));
  EXPECT_TRUE(canOpen(taken, kBegin + 2).ok());
}

// One knows the former version and gets the step alone, the other knows nothing.
TEST_F(SteppedPartTest, WhoTakesItOverReadsBothVersionsBeginsAtEitherAndGoesOnAsItWould) {
  std::unique_ptr<RowSteps> went_on;
  for (std::int64_t v = kBegin; v < kBegin + 30; ++v) {
    const auto former = rowsAt(many_, v);
    bringTo(many_, ++seed_);
    ASSERT_TRUE(many_replica_.takeOver(many_.give(v)).ok());
    auto fresh = std::make_unique<RowSteps>(tables_.configs, ManyTables::kRange);
    ASSERT_TRUE(fresh->takeOver(many_.give(-1)).ok());
    std::vector<RowAnswer> told;
    many_.onReplicated(v, told);
    const auto newest = rowsAt(many_, v + 1);
    EXPECT_NE(newest, former);
    for (RowSteps* taken : {&many_replica_, fresh.get()}) {
      EXPECT_TRUE(bitsOf(*taken) == bitsOf(many_)) << v;
      for (const std::int64_t other : {v - 1, v + 2})
        EXPECT_TRUE(absl::IsFailedPrecondition(canOpen(*taken, other))) << other;
      for (const std::int64_t first : {v, v + 1}) {
        open(*taken, first);
        EXPECT_EQ(rowsAt(*taken, v), former) << v;
        EXPECT_EQ(rowsAt(*taken, v + 1), newest) << v;
      }
    }
    EXPECT_TRUE(went_on == nullptr || bitsOf(*went_on) == bitsOf(many_)) << v;
    went_on = std::move(fresh);
    bringTo(*went_on, seed_ + 1);  // as many_ is in the next turn
  }
}

// What a damaged or foreign server could give.
TEST_F(SteppedPartTest, WhatDoesNotFitIsNotTakenOver) {
  for (int i = 0; i < 10; ++i) ASSERT_NO_FATAL_FAILURE(takeStep());
  const GivenPart good = many_.give(-1);
  // The first partition with two rows, and the first of them.
  const std::vector<std::int64_t>& sizes = good.stores[0].sizes;
  const auto p = std::ranges::find_if(sizes, [](std::int64_t s) { return s >= 2; }) - sizes.begin();
  const auto i =
      static_cast<std::size_t>(std::accumulate(sizes.begin(), sizes.begin() + p, std::int64_t{0}));
  ASSERT_LT(p + 1, std::ssize(sizes));
  struct Case {
    std::function<void(TableRows&)> spoil;  // the first store
    const char* message;
  };
  const std::vector<Case> cases = {
      {[](TableRows& r) { r.steps.pop_back(); }, "table user: arrays of other lengths"},
      {[](TableRows& r) { r.counts.push_back(1); }, "arrays of other lengths"},
      {[](TableRows& r) { r.weights.push_back(1); }, "arrays of other lengths"},
      {[](TableRows& r) { r.weights.clear(); }, "arrays of other lengths"},
      {[](TableRows& r) { r.slots.pop_back(); }, "arrays of other lengths"},
      {[](TableRows& r) { r.slots.emplace_back(r.weights); }, "arrays of other lengths"},
      {[](TableRows& r) { r.slots[1].pop_back(); }, "arrays of other lengths"},
      {[](TableRows& r) { r.ids.pop_back(); }, "rows of other partitions"},
      {[](TableRows& r) { ++r.first; }, "rows of other partitions"},
      {[](TableRows& r) { r.sizes.pop_back(); }, "rows of other partitions"},
      {[](TableRows& r) { r.sizes.push_back(0); }, "rows of other partitions"},
      {[](TableRows& r) { r.sizes.clear(); }, "rows of other partitions"},
      {[](TableRows& r) {
         r.sizes[1] += r.sizes[0] + 1;
         r.sizes[0] = -1;
       },
       "rows of other partitions"},
      {[](TableRows& r) {
         r.sizes[0] += 1'000'000;
         r.sizes[1] -= 1'000'000;
       },
       "rows of other partitions"},
      {[=](TableRows& r) {
         --r.sizes[static_cast<std::size_t>(p)];
         ++r.sizes[static_cast<std::size_t>(p + 1)];
       },
       "is not in its place"},
      {[=](TableRows& r) { std::swap(r.ids[i], r.ids[i + 1]); }, "is not in its place"},
      {[=](TableRows& r) { r.ids[i + 1] = r.ids[i]; }, "is not in its place"},
      {[=](TableRows& r) { std::ranges::reverse(r.ids); }, "is not in its place"},
  };
  const auto refusal = [&](GivenPart given) {
    RowSteps taken(tables_.configs, ManyTables::kRange);
    const Status status = taken.takeOver(std::move(given));
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  for (const Case& c : cases) {
    GivenPart given = good;
    c.spoil(given.stores[0]);
    EXPECT_THAT(refusal(std::move(given)), HasSubstr(c.message));
  }
  GivenPart given = good;
  given.stores.pop_back();
  EXPECT_THAT(refusal(given), HasSubstr("5 tables of rows, the job has 6"));
  given.stores = good.stores;
  given.stores.push_back(good.stores.back());
  EXPECT_THAT(refusal(given), HasSubstr("7 tables of rows, the job has 6"));
  given.stores = good.stores;
  std::swap(given.stores[0], given.stores[1]);
  EXPECT_THAT(refusal(given), HasSubstr("table user"));
}

TEST_F(SteppedPartTest, AnUpdateBehindAnotherVersionIsNotTakenOver) {
  takeStep();
  takeStep();
  const std::string bits = bitsOf(many_replica_);
  for (const std::int64_t other : {kBegin, kBegin + 1, kBegin + 3}) {
    GivenPart given;
    given.point = given.version = other;
    given.update = std::make_shared<const PartUpdate>(*update_);
    const Status status = many_replica_.takeOver(given);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << other;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(fmt::format("partitions 5 to 12: at version 102, what came is behind {}",
                                      other)));
  }
  GivenPart given = many_.give(-1);
  PartUpdate wrong = *update_;
  wrong.step = wrong.point = kBegin + 2;
  given.update = std::make_shared<const PartUpdate>(wrong);
  RowSteps taken(tables_.configs, ManyTables::kRange);
  EXPECT_THAT(std::string(taken.takeOver(given).message()), HasSubstr("of another version"));

  wrong = *update_;
  wrong.step = wrong.point = kBegin + 2;
  wrong.gradients[3] = {{tables_.ids[3][0]}, {1}, {1, 1, std::nanf(""), 1}};
  given = many_.give(kBegin + 2);
  given.update = std::make_shared<const PartUpdate>(wrong);
  const Status status = many_replica_.takeOver(given);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("table ad: the gradient of id"));
  EXPECT_TRUE(bitsOf(many_replica_) == bits) << "and nothing of it is taken";
}

}  // namespace
}  // namespace trainyard::runtime::rows
