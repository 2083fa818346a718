// Chunks that change their server between two epochs: the new holder goes on exactly as the former
// one would have, and nothing is lost when the epoch comes to nothing.
#include "gmock/gmock.h"
#include "runtime/ps/chunk_moves.h"
#include "tests/runtime/ps/helpers.h"

namespace trainyard::runtime::ps {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

v1::OptimizerSpec momentum() {
  v1::OptimizerSpec spec;
  spec.set_name("Momentum");
  spec.set_learning_rate(0.5);
  spec.set_momentum(0.5);
  return spec;
}

// ps-0 with chunks 0 and 2, and ps-2, which has none at first.
class ShardMovesTest : public testing::Test {
 protected:
  explicit ShardMovesTest(const std::function<void(ShardConfig&)>& change = {})
      : from_(change, momentum()),
        to_(
            [change](ShardConfig& config) {
              if (change) change(config);
              config.ps = 2;
            },
            momentum()) {}
  // Both of epoch 2, which begins at `step`; ps-2 has chunk 0 then.
  void move(std::int64_t step, int ranks) {
    from_.shard.seal(2, from_.out);
    to_.shard.seal(2, to_.out);
    from_.shard.assign(kMoved);
    to_.shard.assign(kMoved);
    const auto contents = from_.shard.give(2, 0);
    ASSERT_TRUE(contents.ok()) << contents.status();
    ASSERT_TRUE(to_.shard.takeOver(0, *contents).ok());
    for (ShardBench* bench : {&from_, &to_}) {
      const Status opened = bench->shard.open(2, planFor(step, ranks), false, false);
      ASSERT_TRUE(opened.ok()) << opened;
      bench->epoch = 2;
      bench->shard.release();
    }
  }
  static std::vector<float> weightsOf(ShardBench& bench, std::uint32_t chunk, std::int64_t step) {
    const ChunkAnswer answer = bench.take(bench.pull(chunk, step));
    EXPECT_EQ(answer.header.code(), v1::CHUNK_OK) << answer.header.message();
    if (answer.payload == nullptr) return {};
    return {answer.payload->begin(), answer.payload->end()};
  }

  const std::vector<int> kMoved = {2, 1, 0};
  ShardBench from_;
  ShardBench to_;
};

TEST_F(ShardMovesTest, TheNewHolderGoesOnAsTheFormerWouldHave) {
  ShardBench alone({}, momentum());
  alone.open(1);
  from_.open(1);
  for (ShardBench* bench : {&alone, &from_}) {
    for (const std::uint32_t chunk : {0u, 2u}) bench->push(chunk, 0, 0, 8);
  }
  ASSERT_NO_FATAL_FAILURE(move(1, 1));
  EXPECT_EQ(from_.shard.parameterBytes(), 8u);
  EXPECT_EQ(to_.shard.parameterBytes(), 24u);
  EXPECT_EQ(weightsOf(to_, 0, 1), weightsOf(alone, 0, 1));
  alone.push(0, 1, 0, 4);
  to_.push(0, 1, 0, 4);
  EXPECT_EQ(weightsOf(to_, 0, 2), weightsOf(alone, 0, 2)) << "its slot has come along";
  EXPECT_THAT(weightsOf(to_, 0, 2), Each(-8));  // -4; then momentum 8/2 + 4, half of it
  EXPECT_EQ(from_.code(from_.pull(0, 1)), v1::CHUNK_WRONG_SERVER);
  from_.push(2, 1, 0, 4);
  EXPECT_EQ(weightsOf(from_, 2, 2).size(), 2u) << "what stayed goes on";
}

TEST_F(ShardMovesTest, TheVersionBeforeComesAlong) {
  from_.open(1);
  for (const std::uint32_t chunk : {0u, 2u}) from_.push(chunk, 0, 0, 8);
  ASSERT_NO_FATAL_FAILURE(move(0, 1));
  EXPECT_THAT(weightsOf(to_, 0, 0), Each(0));
  EXPECT_THAT(weightsOf(to_, 0, 1), Each(-4));
}

TEST_F(ShardMovesTest, AnEpochThatComesToNothingLeavesTheModelWhereItWas) {
  from_.open(1);
  for (const std::uint32_t chunk : {0u, 2u}) from_.push(chunk, 0, 0, 8);
  from_.shard.seal(2, from_.out);
  from_.shard.assign(kMoved);
  ASSERT_TRUE(from_.shard.open(2, planFor(1, 1), false, false).ok());
  EXPECT_TRUE(from_.shard.give(2, 0).ok()) << "opened, but the epoch has not begun everywhere";
  from_.shard.seal(3, from_.out);
  EXPECT_FALSE(from_.shard.give(2, 0).ok());
  EXPECT_TRUE(from_.shard.give(3, 0).ok());
  from_.shard.assign({0, 1, 0});
  const Status opened = from_.shard.open(3, planFor(1, 1), false, false);
  ASSERT_TRUE(opened.ok()) << opened;
  from_.epoch = 3;
  EXPECT_THAT(weightsOf(from_, 0, 1), Each(-4));
}

TEST_F(ShardMovesTest, OnceTheEpochHasBegunNothingIsGiven) {
  from_.open(1);
  for (const std::uint32_t chunk : {0u, 2u}) from_.push(chunk, 0, 0, 8);
  EXPECT_TRUE(absl::IsFailedPrecondition(from_.shard.give(2, 0).status())) << "not sealed yet";
  ASSERT_NO_FATAL_FAILURE(move(1, 1));
  EXPECT_TRUE(absl::IsFailedPrecondition(from_.shard.give(2, 0).status()));
  from_.shard.seal(3, from_.out);
  EXPECT_TRUE(absl::IsNotFound(from_.shard.give(3, 0).status())) << "it is dropped";
  EXPECT_TRUE(absl::IsNotFound(from_.shard.give(3, 99).status()));
}

TEST_F(ShardMovesTest, WhatDoesNotFitIsRefusedAndTheEpochDoesNotOpen) {
  from_.open(1);
  from_.shard.seal(2, from_.out);
  to_.shard.seal(2, to_.out);
  to_.shard.assign(kMoved);
  EXPECT_FALSE(to_.shard.open(2, planFor(0, 1), false, false).ok()) << "chunk 0 is missing";
  auto contents = from_.shard.give(2, 2);  // of two elements
  ASSERT_TRUE(contents.ok());
  EXPECT_THAT(to_.shard.takeOver(0, *contents).ToString(),
              HasSubstr("ps-2: chunk 0: 8 bytes of weights, expected 24"));
  contents = from_.shard.give(2, 0);
  contents->slots.clear();
  EXPECT_THAT(to_.shard.takeOver(0, *contents).ToString(), HasSubstr("0 optimizer slots"));
  EXPECT_THAT(to_.shard.takeOver(0, GivenChunk{}).ToString(), HasSubstr("no version"));
}

TEST_F(ShardMovesTest, StaleCopiesAreReplaced) {
  from_.open(1);
  for (const std::uint32_t chunk : {0u, 2u}) from_.push(chunk, 0, 0, 8);
  ASSERT_NO_FATAL_FAILURE(move(1, 1));
  to_.push(0, 1, 0, 4);
  GivenChunk contents;
  {
    to_.shard.seal(3, to_.out);
    contents = *to_.shard.give(3, 0);
  }
  from_.shard.seal(3, from_.out);
  from_.shard.assign({0, 1, 0});
  ASSERT_TRUE(from_.shard.takeOver(0, contents).ok());
  contents.version = 7;
  ASSERT_TRUE(from_.shard.takeOver(0, contents).ok());
  EXPECT_EQ(from_.shard.state().max_version(), 7);
}

// Clipping: how many chunks make a server's part follows the map.
class ClippedMovesTest : public ShardMovesTest {
 protected:
  ClippedMovesTest() : ShardMovesTest([](ShardConfig& config) { config.clip_norm = 1; }) {}
};

TEST_F(ClippedMovesTest, EachSumsWhatItHolds) {
  from_.open(1);
  from_.push(0, 0, 0, 2);
  from_.push(2, 0, 0, 2);
  EXPECT_EQ(from_.shard.state().squares().step(), 0);
  from_.shard.setNorm(1, 0, 10);
  while (from_.shard.updateNext(from_.out)) {
  }
  ASSERT_NO_FATAL_FAILURE(move(1, 1));
  EXPECT_FALSE(from_.shard.state().has_squares());
  from_.push(2, 1, 0, 2);
  EXPECT_TRUE(from_.shard.takeUrgent());
  EXPECT_EQ(from_.shard.state().squares().step(), 1) << "its only chunk";
  to_.push(0, 1, 0, 2);
  EXPECT_EQ(to_.shard.state().squares().step(), 1);
}

// Asynchronous: gradients that wait for others move too, and pushes that come again are known.
class AsyncMovesTest : public ShardMovesTest {
 protected:
  AsyncMovesTest()
      : ShardMovesTest([](ShardConfig& config) {
          config.asynchronous = true;
          config.aggregate = 2;
        }) {}
  static CallId pushOf(ShardBench& bench, std::uint32_t worker, std::int64_t push, float value) {
    v1::ChunkRequestHeader header = bench.header(0, 0, 0);
    header.set_worker(worker);
    *header.mutable_worker_incarnation() = incarnation(1, 1);
    header.set_push(push);
    return bench.send(
        header, std::make_unique<LoggedPayload>(std::vector<float>(bench.elements(0), value)));
  }
};

TEST_F(AsyncMovesTest, WhatWasPushedStaysPushedOnce) {
  from_.open(1);
  pushOf(from_, 0, 1, 8);
  ASSERT_NO_FATAL_FAILURE(move(0, 2));
  EXPECT_THAT(weightsOf(to_, 0, 0), Each(0)) << "half of an update";
  EXPECT_EQ(to_.code(pushOf(to_, 0, 1, 8)), v1::CHUNK_OK);
  EXPECT_THAT(weightsOf(to_, 0, 0), Each(0)) << "the same push again";
  pushOf(to_, 1, 1, 16);
  EXPECT_THAT(weightsOf(to_, 0, 1), Each(-6)) << "half of the mean of 8 and 16";
}

TEST(ChunkMoves, OfAnEpochsAnnouncement) {
  v1::EpochInfo epoch;
  EXPECT_THAT(serversOf({0, 1, 0}, epoch), ElementsAre(0, 1, 0));
  EXPECT_THAT(chunksToFetch(epoch, 0), ElementsAre());
  for (const int ps : {2, 1, 0}) epoch.add_chunk_ps(ps);
  EXPECT_THAT(serversOf({0, 1, 0}, epoch), ElementsAre(2, 1, 0));
  EXPECT_THAT(chunksToFetch(epoch, 2), ElementsAre()) << "nothing is held: all is loaded";
  for (const int ps : {0, 1, 0}) epoch.add_former_ps(ps);
  EXPECT_THAT(chunksToFetch(epoch, 2), ElementsAre(0u));
  EXPECT_THAT(chunksToFetch(epoch, 0), ElementsAre());
}

}  // namespace
}  // namespace trainyard::runtime::ps
