// Replicas of parts without common steps: each push goes to the replica, in the part's order, and
// is answered when it is there.
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/core/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/rows/row_pushes.h"
#include "tests/runtime/rows/replica_tables.h"

namespace trainyard::runtime::rows {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Code = RowAnswer::Code;

class PushedPartTest : public testing::Test {
 protected:
  PushedPartTest() { begin(1); }
  void begin(int aggregate) { begin(aggregate, oneTable(), PartitionRange{}); }
  void begin(int aggregate, const std::vector<RowTableConfig>& tables, PartitionRange range) {
    make_ = [=] { return std::make_unique<RowPushes>(tables, range, aggregate); };
    part_ = make_();
    replica_ = make_();
    part_->setGuarded(true);
    tables_of_part_ = tables.size();
    open(1);
  }
  void open(std::int64_t epoch) {
    ASSERT_TRUE(part_->open(epoch, StepPlan()).ok());
    epoch_ = epoch;
  }
  std::vector<RowAnswer> seal() {
    std::vector<RowAnswer> answers;
    part_->seal(answers);
    return answers;
  }
  RowRequest read() const { return readOfRow(epoch_, 0, kNewestRows); }
  // The next of this worker's pushes.
  RowRequest pushOf(std::uint32_t worker, float gradient) {
    RowRequest push = pushOfRow(epoch_, worker, ++pushes_[worker], ticket_, gradient);
    push.step = ticket_++ / 2;
    return push;
  }
  // Of some rows of all tables.
  RowRequest randomPush(Rng& random) {
    RowRequest push = pushOf(static_cast<std::uint32_t>(random.below(3)), 0);
    push.ids.assign(tables_of_part_, {});
    push.gradients = tables_.gradients(random);
    return push;
  }
  std::vector<RowAnswer> ask(RowRequest request) {
    return askedOf(*part_, std::move(request), ++call_);
  }
  std::vector<RowAnswer> confirm(std::int64_t point) {
    std::vector<RowAnswer> answers;
    part_->onReplicated(point, answers);
    return answers;
  }
  // All that is to be sent arrives and is confirmed, and what that sets free. How many pushes.
  int deliver() {
    int count = 0;
    while (const auto update = sentBy(*part_)) {
      EXPECT_TRUE(replica_->takeAsReplica(update)) << update->point;
      confirm(update->point);
      ++count;
    }
    return count;
  }
  // Brings a push, and all of it to the replica.
  void push(std::uint32_t worker, float gradient) {
    ask(pushOf(worker, gradient));
    EXPECT_EQ(deliver(), 1);
  }
  static std::string allOf(const RowPushes& part) { return bitsOf(part.give(-1)); }
  void expectEqual() const { EXPECT_TRUE(allOf(*part_) == allOf(*replica_)); }
  float row() { return ask(read()).at(0).rows.at(0).at(0); }

  const ManyTables tables_;
  std::function<std::unique_ptr<RowPushes>()> make_;
  std::unique_ptr<RowPushes> part_;
  std::unique_ptr<RowPushes> replica_;
  std::size_t tables_of_part_ = 1;
  std::map<std::uint32_t, std::int64_t> pushes_;  // by worker
  std::int64_t epoch_ = 0;
  std::int64_t ticket_ = 0;
  CallId call_ = 0;
};

TEST_F(PushedPartTest, APushIsAnsweredWhenItsReplicaHasItAndTheNextAreTakenInOrder) {
  EXPECT_THAT(ask(pushOf(0, 4)), IsEmpty());
  const auto first = sentBy(*part_);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->point, 0);
  EXPECT_EQ(first->push.worker, 0U);
  EXPECT_EQ(first->push.samples, 2);
  EXPECT_THAT(first->gradients.at(0).sums, ElementsAre(4)) << "as it came";
  EXPECT_EQ(sentBy(*part_), nullptr) << "each is sent once";
  EXPECT_THAT(ask(pushOf(1, 8)), IsEmpty());
  EXPECT_THAT(ask(pushOf(0, 16)), IsEmpty());
  EXPECT_EQ(part_->point(), 1) << "the others are not taken yet";
  EXPECT_EQ(sentBy(*part_), nullptr);

  EXPECT_THAT(confirm(0), ElementsAre(answeredWith(1, -2)));
  const auto second = sentBy(*part_);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->point, 1);
  EXPECT_EQ(second->push.worker, 1U);
  EXPECT_THAT(confirm(1), ElementsAre(answeredWith(2, -6)));
  EXPECT_THAT(confirm(2), ElementsAre(answeredWith(3, -14)));
  for (const std::int64_t late : {0, 1, 2, 3}) EXPECT_THAT(confirm(late), IsEmpty()) << late;
}

TEST_F(PushedPartTest, OnlyTheNewestPushIsConfirmed) {
  EXPECT_THAT(confirm(-1), IsEmpty()) << "there is none";
  push(0, 4);
  ask(pushOf(0, 4));
  for (const std::int64_t other : {-1, 0, 2, 3}) EXPECT_THAT(confirm(other), IsEmpty()) << other;
  EXPECT_THAT(confirm(1), ElementsAre(answered(2, Code::kRows)));
}

TEST_F(PushedPartTest, APushThatComesAgainCountsOnceHereAndThere) {
  const RowRequest first = pushOf(0, 4);
  ask(first);
  EXPECT_THAT(ask(first), IsEmpty()) << "it is still on its way to the replica";
  EXPECT_THAT(ask(pushOf(1, 8)), IsEmpty());
  const auto update = sentBy(*part_);
  EXPECT_TRUE(replica_->takeAsReplica(update));
  EXPECT_TRUE(replica_->takeAsReplica(update)) << "its confirmation was lost";
  EXPECT_EQ(replica_->point(), 1);
  EXPECT_THAT(confirm(0), ElementsAre(answeredWith(1, -2), answeredWith(2, -2)));
  EXPECT_EQ(deliver(), 1);
  EXPECT_THAT(ask(first), ElementsAre(answeredWith(4, -6))) << "in already, and with the replica";
  EXPECT_EQ(sentBy(*part_), nullptr);
  EXPECT_EQ(part_->version(), 2);
  expectEqual();
}

TEST_F(PushedPartTest, SeveralPushesMakeAnUpdateHereAndThere) {
  begin(2);
  EXPECT_THAT(ask(pushOf(0, 4)), IsEmpty());
  EXPECT_EQ(part_->point(), 1);
  EXPECT_EQ(part_->version(), 0);
  EXPECT_TRUE(replica_->takeAsReplica(sentBy(*part_)));
  EXPECT_THAT(confirm(0), ElementsAre(answeredWith(1, 0)));
  expectEqual();
  EXPECT_THAT(ask(pushOf(1, 8)), IsEmpty());
  EXPECT_EQ(part_->version(), 1);
  EXPECT_TRUE(replica_->takeAsReplica(sentBy(*part_)));
  EXPECT_THAT(confirm(1), ElementsAre(answeredWith(2, -3)));  // (4 + 8) / 4 samples
  expectEqual();
  EXPECT_EQ(replica_->version(), 1);
}

TEST_F(PushedPartTest, AReplicaThatLacksAPushTakesNoneBehindIt) {
  begin(2);
  ask(pushOf(0, 4));
  sentBy(*part_);  // lost
  confirm(0);
  ask(pushOf(1, 8));
  EXPECT_FALSE(replica_->takeAsReplica(sentBy(*part_)));
  EXPECT_EQ(replica_->point(), 0);
  EXPECT_EQ(replica_->table(0).size(), 0);
}

TEST_F(PushedPartTest, AReplicaFollowsWhatWasSettled) {
  begin(2);
  push(0, 4);
  part_->settle(5);
  EXPECT_EQ(part_->point(), 10);
  EXPECT_EQ(replica_->point(), 1);
  push(1, 8);
  EXPECT_EQ(replica_->point(), 11);
  expectEqual();
  push(0, 8);
  EXPECT_EQ(row(), -6);  // 4 / 2 samples, then 16 / 4
  part_->settle(9);
  push(0, 2);
  EXPECT_EQ(replica_->version(), 9) << "nothing was incomplete";
  expectEqual();
}

TEST_F(PushedPartTest, WhatAnEpochLeavesComesAgainUnderTheNext) {
  const RowRequest taken = pushOf(0, 4);
  const RowRequest waits = pushOf(1, 8);
  ask(taken);
  ask(waits);
  EXPECT_THAT(seal(), ElementsAre(answered(1, Code::kEpochOver), answered(2, Code::kEpochOver)));
  EXPECT_THAT(confirm(0), IsEmpty());
  ASSERT_TRUE(replica_->takeOver(part_->give(replica_->point())).ok());
  expectEqual();
  open(2);
  sentBy(*part_);
  RowRequest again = taken;
  again.epoch = 2;
  EXPECT_THAT(ask(again), ElementsAre(answeredWith(3, -2))) << "the replica has it";
  again = waits;
  again.epoch = 2;
  EXPECT_THAT(ask(again), IsEmpty());
  EXPECT_EQ(deliver(), 1);
  EXPECT_EQ(row(), -6);
  expectEqual();
}

TEST_F(PushedPartTest, WhoWaitsTooLongIsToldThatItIsForTheReplica) {
  ask(pushOf(0, 4));
  ask(pushOf(1, 8));
  ask(pushOf(2, 16));
  for (const CallId call : {1U, 2U}) {
    const auto given_up = part_->giveUp(call);
    ASSERT_TRUE(given_up);
    EXPECT_EQ(given_up->code, Code::kNotReady);
    EXPECT_EQ(given_up->message, "a push waits for the part's replica");
    EXPECT_FALSE(part_->giveUp(call));
  }
  part_->cancel(3);
  EXPECT_FALSE(part_->giveUp(3));
  EXPECT_THAT(confirm(0), IsEmpty());
  EXPECT_EQ(row(), -2) << "what was never taken comes again";
}

TEST_F(PushedPartTest, APushThatCannotBeTakenIsNotSent) {
  ask(pushOf(0, 4));
  ask(pushOf(1, std::numeric_limits<float>::infinity()));
  ask(pushOf(2, 8));
  sentBy(*part_);
  EXPECT_THAT(confirm(0), ElementsAre(answeredWith(1, -2), answered(2, Code::kNotReady),
                                      answered(3, Code::kNotReady)));
  EXPECT_EQ(sentBy(*part_), nullptr);
  EXPECT_THAT(std::string(part_->failure().message()), HasSubstr("id 7 is not finite"));
  EXPECT_EQ(part_->version(), 1);
}

TEST_F(PushedPartTest, WithoutAReplicaNothingIsSentAndNobodyWaits) {
  part_->setGuarded(false);
  EXPECT_THAT(ask(pushOf(0, 4)), ElementsAre(answeredWith(1, -2)));
  EXPECT_EQ(sentBy(*part_), nullptr);
}

TEST_F(PushedPartTest, AReplicaIsEqualBitByBit) {
  for (const int aggregate : {1, 2, 3}) {
    begin(aggregate, tables_.configs, ManyTables::kRange);
    Rng random(static_cast<std::uint64_t>(aggregate));
    for (int i = 0; i < 100; ++i) {
      std::vector<RowRequest> pushes{randomPush(random)};
      if (random.below(4) == 0) pushes.push_back(pushes[0]);
      if (random.below(2) == 0) pushes.push_back(randomPush(random));
      for (const RowRequest& each : pushes) ask(each);
      deliver();
      ASSERT_TRUE(allOf(*part_) == allOf(*replica_)) << aggregate << ", " << i;
      if (random.below(16) == 0) part_->settle(part_->version() + 1 + (aggregate > 1));
    }
    for (const std::size_t t : {0U, 1U, 3U}) EXPECT_GT(part_->meter(t).counts().evicted, 0U) << t;
  }
}

TEST_F(PushedPartTest, WhatIsGivenIsWhatIsLacking) {
  begin(2);
  for (const float gradient : {4.0F, 8.0F, 16.0F}) push(0, gradient);
  const GivenPart nothing = part_->give(3);
  EXPECT_TRUE(nothing.stores.empty() && nothing.update == nullptr && nothing.applied.empty());
  EXPECT_EQ(nothing.point, 3);
  for (const RowPushes* holder : {part_.get(), replica_.get()}) {
    const GivenPart newest = holder->give(2);
    EXPECT_TRUE(newest.stores.empty());
    ASSERT_NE(newest.update, nullptr);
    EXPECT_EQ(newest.point, 2) << "of what it comes behind";
    EXPECT_EQ(newest.update->push.number, 3);
    for (const std::int64_t known : {-1, 0, 1, 4}) {
      const GivenPart all = holder->give(known);
      EXPECT_EQ(all.stores.size(), 1U) << known;
      EXPECT_EQ(all.update, nullptr);
      EXPECT_EQ(all.point, 3);
      EXPECT_EQ(all.version, 1);
      ASSERT_EQ(all.applied.size(), 1U);
      EXPECT_EQ(all.applied[0].number, 3);
      EXPECT_EQ(all.brought.size(), 1U);
      EXPECT_EQ(all.brought_samples, 2);
      EXPECT_EQ(all.tickets.end(), 3);
      EXPECT_EQ(all.samples.end(), 6);
    }
  }
  part_->settle(2);
  EXPECT_EQ(part_->give(2).stores.size(), 1U) << "more than a push has come since";
  EXPECT_EQ(part_->give(3).stores.size(), 1U);
  EXPECT_TRUE(part_->give(4).stores.empty());
}

TEST_F(PushedPartTest, WhoTakesItOverKnowsItsPushesAndGoesOnAsItWould) {
  for (const int aggregate : {1, 2, 3}) {
    begin(aggregate, tables_.configs, ManyTables::kRange);
    Rng random(static_cast<std::uint64_t>(aggregate));
    for (int i = 0; i < 20; ++i) {
      const std::int64_t known = part_->point();
      const RowRequest newest = randomPush(random);
      ask(newest);
      ASSERT_TRUE(replica_->takeOver(part_->give(known)).ok()) << "the push alone";
      confirm(known);
      const auto fresh = make_();
      ASSERT_TRUE(fresh->takeOver(part_->give(-1)).ok());
      for (RowPushes* taken : {replica_.get(), fresh.get()}) {
        ASSERT_TRUE(allOf(*taken) == allOf(*part_)) << aggregate << ", " << i;
        EXPECT_TRUE(taken->tickets().contains(newest.push.ticket));
        EXPECT_TRUE(taken->takeAsReplica(std::make_shared<const PartUpdate>(
            PartUpdate{known, newest.step, newest.push, *newest.gradients})));
        ASSERT_TRUE(taken->open(epoch_, StepPlan()).ok());
        EXPECT_EQ(askedOf(*taken, newest, 1).at(0).code, Code::kRows);
        EXPECT_EQ(taken->point(), known + 1) << "it comes again and counts once";
      }
      const RowRequest next = randomPush(random);
      askedOf(*fresh, next, 2);
      ask(next);
      EXPECT_EQ(deliver(), 1);
      ASSERT_TRUE(allOf(*fresh) == allOf(*part_)) << aggregate << ", " << i;
    }
  }
}

TEST_F(PushedPartTest, WhatDoesNotFitIsNotTakenOver) {
  begin(2);
  for (const float gradient : {4.0F, 8.0F, 16.0F}) push(0, gradient);
  struct Case {
    void (*spoil)(GivenPart&);
    const char* message;
  };
  const std::vector<Case> all = {
      {[](GivenPart& g) { ++g.point; }, "partitions 0 to 1023: 3 pushes, what came is behind 4"},
      {[](GivenPart& g) { ++g.version; }, "5 pushes, what came is behind 3"},
      {[](GivenPart& g) { g.brought.clear(); }, "pushes that make no update"},
      {[](GivenPart& g) { g.brought_samples = 0; }, "pushes that make no update"},
      {[](GivenPart& g) { g.brought.push_back(g.brought[0]); }, "pushes that make no update"},
      {[](GivenPart& g) { g.brought.clear(), g.brought_samples = 0; },
       "2 pushes, what came is behind 3"},
      {[](GivenPart& g) { g.stores.push_back(g.stores[0]); }, "2 tables of rows, the job has 1"},
      {[](GivenPart& g) { g.stores[0].weights.clear(); }, "table user: arrays of other lengths"},
      {[](GivenPart& g) { g.stores[0].ids[0] = 8; }, "table user: id 8 is not in its place"},
      {[](GivenPart& g) {
         g.update = std::make_shared<const PartUpdate>(
             PartUpdate{5, 0, {.worker = 1, .number = 1, .samples = 1}, {RowGradients{}}});
       },
       "a push behind others"},
  };
  for (const Case& c : all) {
    GivenPart given = part_->give(-1);
    c.spoil(given);
    const Status status = make_()->takeOver(given);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << c.message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
  }
  const std::string before = allOf(*replica_);
  GivenPart newest = part_->give(2);
  EXPECT_THAT(std::string(replica_->takeOver(newest).message()),
              HasSubstr("3 pushes, what came is behind 2"));
  EXPECT_TRUE(allOf(*replica_) == before);
}

}  // namespace
}  // namespace trainyard::runtime::rows
