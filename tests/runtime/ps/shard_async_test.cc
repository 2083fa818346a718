// A server in the asynchronous modes: each push is applied as it comes.
#include <limits>

#include "gmock/gmock.h"
#include "tests/runtime/ps/helpers.h"

namespace trainyard::runtime::ps {
namespace {

using testing::Each;
using testing::HasSubstr;

struct AsyncShardBench : ShardBench {
  explicit AsyncShardBench(int aggregate = 1, v1::OptimizerSpec spec = descent())
      : ShardBench(
            [=](ShardConfig& c) {
              c.asynchronous = true;
              c.aggregate = aggregate;
            },
            std::move(spec)),
        aggregate_(aggregate) {}
  v1::ChunkRequestHeader pushHeader(std::uint32_t chunk, std::int64_t ticket, std::uint32_t worker,
                                    std::uint32_t samples) const {
    v1::ChunkRequestHeader h = header(chunk, ticket / aggregate_, worker);
    h.set_ticket(ticket);
    h.set_push(ticket);
    h.set_samples(samples);
    return h;
  }
  // Answered at once.
  ChunkAnswer pushed(std::uint32_t chunk, std::int64_t ticket, std::uint32_t worker, float value,
                     std::uint32_t samples = 1) {
    return take(send(pushHeader(chunk, ticket, worker, samples),
                     std::make_unique<LoggedPayload>(std::vector<float>(elements(chunk), value))));
  }

 private:
  const int aggregate_;
};

TEST(AsyncShard, EachPushIsAppliedAndAnsweredAtOnce) {
  AsyncShardBench b;
  b.open(2);
  const ChunkAnswer first = b.pushed(0, 0, 0, 3);
  ASSERT_EQ(first.header.code(), v1::CHUNK_OK);
  EXPECT_EQ(first.header.version(), 1);
  EXPECT_THAT(*first.payload, Each(-3.0f));
  // Whatever version the worker computed on, in whatever order tickets come.
  const ChunkAnswer second = b.pushed(0, 5, 1, 4, 2);  // a sum of two samples
  EXPECT_EQ(second.header.version(), 2);
  EXPECT_THAT(*second.payload, Each(-5.0f));
  EXPECT_THAT(*b.take(b.pull(0, 0)).payload, Each(-5.0f));  // asked for any version
  EXPECT_EQ(b.take(b.pull(2, 0)).header.version(), 0);
}

TEST(AsyncShard, ARepeatedPushIsAppliedOnce) {
  AsyncShardBench b;
  b.open(2);
  b.pushed(0, 0, 0, 3);
  b.pushed(0, 1, 1, 1);
  const ChunkAnswer again = b.pushed(0, 0, 0, 3);
  ASSERT_EQ(again.header.code(), v1::CHUNK_OK);
  EXPECT_EQ(again.header.version(), 2);
  EXPECT_THAT(*again.payload, Each(-4.0f));
}

TEST(AsyncShard, APushIsAppliedOnceAlsoOverAnEpochThatKeepsTheState) {
  AsyncShardBench b;
  b.open(2);
  b.pushed(0, 0, 0, 3);
  b.shard.seal(2, b.out);
  EXPECT_EQ(b.pushed(0, 0, 0, 3).header.code(), v1::CHUNK_WRONG_EPOCH);
  ASSERT_TRUE(b.shard.open(2, planFor(0, 2), false, false).ok());
  b.epoch = 2;
  const ChunkAnswer again = b.pushed(0, 0, 0, 3);
  EXPECT_EQ(again.header.version(), 1);
  EXPECT_THAT(*again.payload, Each(-3.0f));
  // What is loaded from a checkpoint knows nothing of it.
  b.shard.seal(3, b.out);
  b.load(0);
  ASSERT_TRUE(b.shard.open(3, planFor(0, 2), false, true).ok());
  b.epoch = 3;
  EXPECT_THAT(*b.pushed(0, 0, 0, 2).payload, Each(-2.0f));
}

TEST(AsyncShard, AggregatedPushesAreAnsweredAtOnceAndEachKthUpdatesWithTheirMean) {
  AsyncShardBench b(3);
  b.open(2);
  for (const std::int64_t ticket : {0, 1}) {
    const ChunkAnswer answer = b.pushed(0, ticket, static_cast<std::uint32_t>(ticket), 6, 2);
    ASSERT_EQ(answer.header.code(), v1::CHUNK_OK);
    EXPECT_EQ(answer.header.version(), 0);
    EXPECT_THAT(*answer.payload, Each(0.0f));
  }
  const ChunkAnswer third = b.pushed(0, 2, 0, 3, 1);
  EXPECT_EQ(third.header.version(), 1);
  EXPECT_THAT(*third.payload, Each(-3.0f));  // 15 of five samples
  EXPECT_EQ(third.header.samples(), 5u);
}

TEST(AsyncShard, WhatWasPushedOfAnUpdateSurvivesAnEpoch) {
  AsyncShardBench b(2);
  b.open(2);
  b.pushed(0, 0, 0, 2);
  b.shard.seal(2, b.out);
  ASSERT_TRUE(b.shard.open(2, planFor(0, 2), false, false).ok());
  b.epoch = 2;
  EXPECT_THAT(*b.pushed(0, 1, 1, 4).payload, Each(-3.0f));
}

TEST(AsyncShard, ASnapshotIsOfTheVersionThatTheCoordinatorNames) {
  AsyncShardBench b(3);
  b.open(2);
  for (std::int64_t ticket = 0; ticket < 4; ++ticket) b.pushed(0, ticket, 0, 3);
  for (std::int64_t ticket = 0; ticket < 3; ++ticket) b.pushed(2, ticket, 0, 3);
  EXPECT_EQ(b.shard.state().captured_checkpoint(), -1);
  // One push of three is in for chunk 0, whose worker died: it makes the update alone.
  EXPECT_TRUE(b.shard.arm(2));
  EXPECT_TRUE(b.shard.captureNext());
  EXPECT_EQ(b.shard.state().captured_checkpoint(), -1) << "one of two";
  EXPECT_TRUE(b.shard.captureNext());
  EXPECT_EQ(b.shard.state().captured_checkpoint(), 2);
  const auto snapshot = b.shard.takeSnapshot();
  ASSERT_TRUE(snapshot.has_value());
  EXPECT_EQ(snapshot->version, 2);
  ASSERT_EQ(snapshot->chunks.size(), 2u);
  EXPECT_THAT(*snapshot->chunks[0].weights, Each(-6.0f));
  EXPECT_THAT(*snapshot->chunks[1].weights, Each(-3.0f));
  EXPECT_EQ(b.shard.state().min_version(), 2);
  EXPECT_EQ(b.shard.state().max_version(), 2);
}

TEST(AsyncShard, RefusesAPushOfAnotherSizeOrWithoutSamples) {
  AsyncShardBench b;
  b.open(2);
  const ChunkAnswer shorter = b.take(
      b.send(b.pushHeader(0, 0, 0, 1), std::make_unique<LoggedPayload>(std::vector<float>(5))));
  EXPECT_EQ(shorter.header.code(), v1::CHUNK_WRONG_SERVER);
  EXPECT_THAT(shorter.header.message(), HasSubstr("24 bytes, the request 20"));
  EXPECT_EQ(b.code(b.send(b.pushHeader(0, 0, 0, 1), nullptr)), v1::CHUNK_WRONG_SERVER);
  EXPECT_EQ(b.pushed(0, 0, 0, 1, 0).header.code(), v1::CHUNK_WRONG_SERVER);
  EXPECT_EQ(b.take(b.pull(0, 0)).header.version(), 0);
}

TEST(AsyncShard, NothingIsAddedToASumThatIsNotFinite) {
  AsyncShardBench b;
  b.open(2);
  EXPECT_EQ(b.pushed(0, 0, 0, std::numeric_limits<float>::infinity()).header.code(),
            v1::CHUNK_NON_FINITE);
  ASSERT_TRUE(b.shard.abort().has_value());
  EXPECT_EQ(b.shard.abort()->variable(), "a");
  EXPECT_EQ(b.pushed(0, 1, 1, 1).header.code(), v1::CHUNK_NON_FINITE);
  EXPECT_THAT(*b.take(b.pull(0, 0)).payload, Each(0.0f));
}

TEST(AsyncShard, TheStepOfThePushDecidesTheLearningRate) {
  v1::OptimizerSpec spec = descent();
  spec.mutable_decay()->set_every(10);
  spec.mutable_decay()->set_rate(0.5);
  spec.mutable_decay()->set_staircase(true);
  AsyncShardBench b(1, spec);
  b.open(2);
  EXPECT_THAT(*b.pushed(0, 9, 0, 1).payload, Each(-1.0f));
  EXPECT_THAT(*b.pushed(0, 10, 1, 1).payload, Each(-1.5f));
}

}  // namespace
}  // namespace trainyard::runtime::ps
