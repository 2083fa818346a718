// Replicas without common steps: each push goes to the replica, in the chunk's order, and is
// answered when it is there.
#include "gmock/gmock.h"
#include "tests/runtime/ps/helpers.h"

namespace trainyard::runtime::ps {
namespace {

constexpr std::uint32_t kChunk = 0;

v1::OptimizerSpec momentumRule() {
  v1::OptimizerSpec spec;
  spec.set_name("Momentum");
  spec.set_learning_rate(0.5);
  spec.set_momentum(0.9);
  return spec;
}

// ps-0 holds the chunk, ps-1 its replica.
class PushReplicas : public testing::TestWithParam<int> {
 protected:
  PushReplicas() {
    for (ShardBench* bench : {&primary_, &keeper_}) bench->shard.seal(1, bench->out);
    primary_.load();
    primary_.shard.replicate({}, true);
    keeper_.shard.assign({0, 0, 0});
    catchUp(1);
    openBoth(1);
  }
  static std::function<void(ShardConfig&)> config(int ps) {
    return [ps](ShardConfig& c) {
      c.asynchronous = true;
      c.aggregate = GetParam();
      c.ps = ps;
    };
  }
  void openBoth(std::int64_t epoch) {
    for (ShardBench* bench : {&primary_, &keeper_}) {
      const Status opened = bench->shard.open(epoch, planFor(0, 2), false, true);
      ASSERT_TRUE(opened.ok()) << opened;
      bench->epoch = epoch;
    }
  }
  // True: it was sent again.
  bool catchUp(std::int64_t epoch) {
    keeper_.shard.replicate({kChunk}, false);
    const auto contents = primary_.shard.give(epoch, kChunk, keeper_.shard.replicaVersion(kChunk));
    EXPECT_TRUE(contents.ok()) << contents.status();
    EXPECT_TRUE(keeper_.shard.takeOver(kChunk, *contents).ok());
    return contents->weights != nullptr;
  }
  CallId push(std::uint32_t worker, std::int64_t number, float value) {
    v1::ChunkRequestHeader h = primary_.header(kChunk, number / GetParam(), worker);
    h.set_push(number);
    h.set_ticket(10 + number);
    h.set_first(100 * number);
    h.set_samples(7);
    *h.mutable_worker_incarnation() = incarnation(1, 1);
    return primary_.send(
        h, std::make_unique<LoggedPayload>(std::vector<float>(primary_.elements(kChunk), value)));
  }
  v1::ChunkCode replicate(const ReplicaUpdate& update) {
    v1::ChunkRequestHeader h = update.header;
    *h.mutable_server() = incarnation(1, 1);
    h.set_holder(0);  // the server that sends it
    return keeper_.code(keeper_.send(h, std::make_unique<LoggedPayload>(*update.mean)));
  }
  // All that is to be sent arrives and is confirmed, and what that sets free.
  int deliver() {
    int count = 0;
    for (auto updates = primary_.shard.takeUpdates(); !updates.empty();
         updates = primary_.shard.takeUpdates()) {
      for (const ReplicaUpdate& update : updates) {
        EXPECT_EQ(replicate(update), v1::CHUNK_OK);
        primary_.shard.onReplicated(update.header, primary_.out);
        ++count;
      }
    }
    return count;
  }
  void expectEqual(std::int64_t epoch) {
    for (ShardBench* bench : {&primary_, &keeper_}) bench->shard.seal(epoch, bench->out);
    const auto chunk = primary_.shard.give(epoch, kChunk);
    const auto replica = keeper_.shard.give(epoch, kChunk);
    ASSERT_TRUE(chunk.ok() && replica.ok());
    EXPECT_EQ(textOf(*chunk), textOf(*replica));
    EXPECT_EQ(replica->slots.size(), 1u);
    EXPECT_GT(replica->record.applied_size(), 0);
  }

  ShardBench primary_{config(0), momentumRule()};
  ShardBench keeper_{config(1), momentumRule()};
};

TEST_P(PushReplicas, AreAnsweredOneAfterTheOther) {
  const CallId first = push(0, 0, 1);
  const CallId second = push(1, 1, 2);
  EXPECT_TRUE(primary_.out.empty()) << "the first is not with the replica";
  const std::vector<ReplicaUpdate> updates = primary_.shard.takeUpdates();
  ASSERT_EQ(updates.size(), 1u) << "the second waits for it";
  EXPECT_EQ(replicate(updates[0]), v1::CHUNK_OK);
  EXPECT_EQ(replicate(updates[0]), v1::CHUNK_OK) << "a repeated one is in already";
  primary_.shard.onReplicated(updates[0].header, primary_.out);
  EXPECT_EQ(primary_.code(first), v1::CHUNK_OK);
  EXPECT_EQ(primary_.code(second), v1::CHUNK_UNSPECIFIED);
  primary_.shard.onReplicated(updates[0].header, primary_.out);
  EXPECT_EQ(primary_.code(second), v1::CHUNK_UNSPECIFIED) << "a late word is of the first";
  EXPECT_EQ(deliver(), 1);
  EXPECT_EQ(primary_.code(second), v1::CHUNK_OK);
  expectEqual(2);
}

TEST_P(PushReplicas, StayEqualBitByBit) {
  for (int i = 0; i < 7; ++i) {
    push(static_cast<std::uint32_t>(i % 2), i, 0.1f * static_cast<float>(i + 1));
    if (i % 3 == 0) deliver();
  }
  deliver();
  expectEqual(2);
}

// Some pushes wait for more of them when a worker dies: they make a last update, here and there.
TEST_P(PushReplicas, FollowWhatWasSettled) {
  push(0, 0, 1);
  deliver();
  EXPECT_TRUE(primary_.shard.arm(5));
  push(1, 1, 2);
  EXPECT_EQ(deliver(), 1);
  expectEqual(2);
}

// An epoch ends between the push and its replica: the worker pushes again, and it counts once.
TEST_P(PushReplicas, WhatWasNotConfirmedIsSentAnew) {
  push(0, 0, 1);
  deliver();
  const CallId open = push(0, 1, 2);
  const CallId waits = push(1, 2, 3);
  for (ShardBench* bench : {&primary_, &keeper_}) bench->shard.seal(2, bench->out);
  EXPECT_EQ(primary_.code(open), v1::CHUNK_WRONG_EPOCH);
  EXPECT_EQ(primary_.code(waits), v1::CHUNK_WRONG_EPOCH);
  EXPECT_TRUE(primary_.shard.takeUpdates().empty());
  EXPECT_TRUE(catchUp(2)) << "it lacks the second push";
  openBoth(2);
  const CallId again = push(0, 1, 2);
  EXPECT_EQ(primary_.code(again), v1::CHUNK_OK) << "in already, and with the replica";
  push(1, 2, 3);
  EXPECT_EQ(deliver(), 1);
  expectEqual(3);
  EXPECT_FALSE(catchUp(3)) << "nothing is lacking";
}

// The server is gone: another one starts from the replica.
TEST_P(PushReplicas, StandInForTheirChunk) {
  for (int i = 0; i < 4; ++i) push(static_cast<std::uint32_t>(i % 2), i, 1);
  deliver();
  expectEqual(2);
  const auto given = keeper_.shard.give(2, kChunk);
  ASSERT_TRUE(given.ok());
  keeper_.shard.assign({1, 0, 0});
  keeper_.shard.adoptReplicas();
  EXPECT_EQ(textOf(*keeper_.shard.give(2, kChunk)), textOf(*given));
}

std::vector<std::pair<std::int64_t, std::int64_t>> rangesOf(const NumberSet::Ranges& told) {
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  for (const v1::NumberRange& range : told) ranges.emplace_back(range.first(), range.end());
  return ranges;
}

// What a new coordinator needs: of all pushes, while nobody computes, until other weights come.
TEST_P(PushReplicas, SayWhichPushesAreIn) {
  for (int i = 0; i < 3; ++i) push(static_cast<std::uint32_t>(i % 2), i, 1);
  deliver();
  EXPECT_EQ(keeper_.shard.state().pushed_tickets_size(), 0) << "the epoch has not ended";
  for (ShardBench* bench : {&primary_, &keeper_}) {
    bench->shard.seal(2, bench->out);
    const v1::ShardState state = bench->shard.state();
    EXPECT_THAT(rangesOf(state.pushed_tickets()), testing::ElementsAre(testing::Pair(10, 13)));
    EXPECT_THAT(rangesOf(state.pushed_samples()),
                testing::ElementsAre(testing::Pair(0, 7), testing::Pair(100, 107),
                                     testing::Pair(200, 207)));
  }
  keeper_.shard.assign({1, 0, 0});
  keeper_.shard.adoptReplicas();
  EXPECT_EQ(keeper_.shard.state().pushed_samples_size(), 3);
  primary_.load();
  openBoth(2);
  primary_.shard.seal(3, primary_.out);
  EXPECT_EQ(primary_.shard.state().pushed_tickets_size(), 0);
}

INSTANTIATE_TEST_SUITE_P(Aggregate, PushReplicas, testing::Values(1, 2, 3));

}  // namespace
}  // namespace trainyard::runtime::ps
