// Replicas: equal to their chunks bit by bit, and ahead of everybody who is told of a step.
#include <cmath>

#include "gmock/gmock.h"
#include "runtime/placement/moves.h"
#include "runtime/ps/chunk_moves.h"
#include "tests/runtime/ps/helpers.h"

namespace trainyard::runtime::ps {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

v1::OptimizerSpec rule(const std::string& name) {
  v1::OptimizerSpec spec;
  spec.set_name(name);
  spec.set_learning_rate(0.3);
  if (name == "Momentum") spec.set_momentum(0.9);
  return spec;
}

// ps-0 holds chunks 0 and 2, and ps-1 replicas of them.
class ShardReplicasTest : public testing::Test {
 protected:
  explicit ShardReplicasTest(const std::string& optimizer = "Momentum", double clip = 0)
      : primary_([clip](ShardConfig& config) { config.clip_norm = clip; }, rule(optimizer)),
        keeper_(
            [clip](ShardConfig& config) {
              config.ps = 1;
              config.clip_norm = clip;
            },
            rule(optimizer)) {}
  void begin(std::int64_t epoch, const StepPlan& plan) {
    for (ShardBench* bench : {&primary_, &keeper_}) bench->shard.seal(epoch, bench->out);
    primary_.shard.replicate({1}, true);
    keeper_.shard.replicate({0, 2}, true);
    if (plan.first_step == 0 && epoch == 1) {
      for (ShardBench* bench : {&primary_, &keeper_}) {
        for (const std::uint32_t chunk : {0u, 1u, 2u}) load(*bench, chunk);
      }
    } else {
      catchUp(epoch);
    }
    for (ShardBench* bench : {&primary_, &keeper_}) {
      const Status opened = bench->shard.open(epoch, plan, false, true);
      ASSERT_TRUE(opened.ok()) << opened;
      bench->epoch = epoch;
    }
  }
  void load(ShardBench& bench, std::uint32_t chunk) {
    const std::size_t n = bench.elements(chunk);
    std::vector<float> weights(n);
    for (std::size_t i = 0; i < n; ++i) weights[i] = 0.1f * static_cast<float>(i + 1);
    std::vector<std::vector<float>> slots;
    for (std::size_t s = 0; s < bench.optimizer->slots().size(); ++s)
      slots.emplace_back(n, bench.optimizer->initialSlot(s));
    bench.shard.load(chunk, 0, weights, slots);
  }
  // As ps-1 does before an epoch begins.
  void catchUp(std::int64_t epoch) {
    for (const std::uint32_t chunk : {0u, 2u}) {
      const auto contents = primary_.shard.give(epoch, chunk, keeper_.shard.replicaVersion(chunk));
      ASSERT_TRUE(contents.ok()) << contents.status();
      sent_again_ += contents->weights != nullptr;
      ASSERT_TRUE(keeper_.shard.takeOver(chunk, *contents).ok());
    }
  }
  CallId push(std::uint32_t chunk, std::int64_t step, float value) {
    std::vector<float> values(primary_.elements(chunk));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = value * std::sin(static_cast<float>(i) + 1.7f * static_cast<float>(step));
    return primary_.send(primary_.header(chunk, step, 0), std::make_unique<LoggedPayload>(values));
  }
  v1::ChunkCode replicate(const ReplicaUpdate& update, std::string* message = nullptr) {
    v1::ChunkRequestHeader header = update.header;
    *header.mutable_server() = incarnation(1, 1);
    const CallId call = keeper_.send(header, std::make_unique<LoggedPayload>(*update.mean));
    const ChunkAnswer answer = keeper_.take(call);
    EXPECT_EQ(answer.payload, nullptr);
    if (message != nullptr) *message = answer.header.message();
    return answer.header.code();
  }
  // All steps that are to be sent arrive and are confirmed.
  void deliver() {
    for (const ReplicaUpdate& update : primary_.shard.takeUpdates()) {
      EXPECT_EQ(replicate(update), v1::CHUNK_OK);
      primary_.shard.onReplicated(update.header, primary_.out);
    }
  }
  // What each says of a chunk for the next epoch, the slots and losses among it.
  static std::string contents(ShardBench& bench, std::uint32_t chunk, std::int64_t epoch) {
    const auto given = bench.shard.give(epoch, chunk);
    EXPECT_TRUE(given.ok()) << given.status();
    return given.ok() ? textOf(*given) : "";
  }

  ShardBench primary_;
  ShardBench keeper_;
  int sent_again_ = 0;
};

class EveryRule : public ShardReplicasTest, public testing::WithParamInterface<std::string> {
 protected:
  EveryRule() : ShardReplicasTest(GetParam()) {}
};

TEST_P(EveryRule, TheReplicaIsEqualBitByBit) {
  ASSERT_NO_FATAL_FAILURE(begin(1, planFor(0, 1)));
  for (std::int64_t step = 0; step < 20; ++step) {
    for (const std::uint32_t chunk : {0u, 2u}) push(chunk, step, 1.3f);
    deliver();
  }
  for (ShardBench* bench : {&primary_, &keeper_}) bench->shard.seal(2, bench->out);
  for (const std::uint32_t chunk : {0u, 2u})
    EXPECT_EQ(contents(primary_, chunk, 2), contents(keeper_, chunk, 2)) << chunk;
}

INSTANTIATE_TEST_SUITE_P(Replicas, EveryRule,
                         testing::Values("SGD", "Momentum", "Adam", "RMSProp", "Adagrad"));

TEST_F(ShardReplicasTest, NobodyIsToldBeforeTheReplicaHasTheStep) {
  ASSERT_NO_FATAL_FAILURE(begin(1, planFor(0, 1)));
  primary_.shard.arm(1);
  const CallId call = push(0, 0, 1);
  push(2, 0, 1);
  std::vector<ReplicaUpdate> updates = primary_.shard.takeUpdates();
  ASSERT_EQ(updates.size(), 2u);
  EXPECT_TRUE(primary_.out.empty());
  EXPECT_FALSE(primary_.shard.takeSnapshot().has_value());
  EXPECT_EQ(primary_.code(primary_.pull(0, 1)), v1::CHUNK_GONE);
  EXPECT_EQ(primary_.code(primary_.pull(0, 0)), v1::CHUNK_OK)
      << "the version before stays readable";
  // The same push again waits in place of the first.
  const CallId repeated = push(0, 0, 1);
  EXPECT_EQ(primary_.code(call), v1::CHUNK_NOT_READY);
  EXPECT_TRUE(primary_.out.empty());
  primary_.shard.onReplicated(updates[0].header, primary_.out);
  EXPECT_EQ(primary_.code(repeated), v1::CHUNK_OK);
  EXPECT_FALSE(primary_.shard.takeSnapshot().has_value());
  primary_.shard.onReplicated(updates[1].header, primary_.out);
  EXPECT_TRUE(primary_.shard.takeSnapshot().has_value());
}

TEST_F(ShardReplicasTest, AStepThatComesTwiceIsTakenOnce) {
  ASSERT_NO_FATAL_FAILURE(begin(1, planFor(0, 1)));
  push(0, 0, 1);
  const std::vector<ReplicaUpdate> updates = primary_.shard.takeUpdates();
  ASSERT_EQ(updates.size(), 1u);
  EXPECT_EQ(replicate(updates[0]), v1::CHUNK_OK);
  EXPECT_EQ(replicate(updates[0]), v1::CHUNK_OK);
  EXPECT_EQ(keeper_.shard.replicaVersion(0), 1);
  ReplicaUpdate later = updates[0];
  later.header.set_step(5);
  std::string message;
  EXPECT_EQ(replicate(later, &message), v1::CHUNK_GONE);
  EXPECT_THAT(message, HasSubstr("is at version 1, not 5"));
  later.header.set_epoch(2);
  EXPECT_EQ(replicate(later), v1::CHUNK_WRONG_EPOCH);
  later = updates[0];
  later.header.set_chunk(1);
  EXPECT_EQ(replicate(later), v1::CHUNK_WRONG_SERVER) << "its own chunk is no replica";
}

// An epoch ends while one step is on its way: the replica gets that chunk, and no other, before the
// next epoch begins.
TEST_F(ShardReplicasTest, WhatItHasMissedItGetsBeforeTheNextEpoch) {
  ASSERT_NO_FATAL_FAILURE(begin(1, planFor(0, 1)));
  push(0, 0, 1);
  primary_.shard.takeUpdates();
  push(2, 0, 1);
  deliver();
  EXPECT_EQ(keeper_.shard.replicaVersion(0), 0);
  EXPECT_EQ(keeper_.shard.replicaVersion(2), 1);
  ASSERT_NO_FATAL_FAILURE(begin(2, planFor(0, 1)));
  EXPECT_EQ(sent_again_, 1);
  EXPECT_EQ(keeper_.shard.replicaVersion(0), 1);
  const CallId again = push(0, 0, 1);
  EXPECT_EQ(primary_.code(again), v1::CHUNK_OK) << "it is confirmed";
  for (ShardBench* bench : {&primary_, &keeper_}) bench->shard.seal(3, bench->out);
  EXPECT_EQ(contents(primary_, 0, 3), contents(keeper_, 0, 3));
}

TEST_F(ShardReplicasTest, StandInForAServerThatStartsAgain) {
  ASSERT_NO_FATAL_FAILURE(begin(1, planFor(0, 1)));
  for (const std::uint32_t chunk : {0u, 2u}) push(chunk, 0, 1);
  deliver();
  push(0, 1, 1);  // lost with ps-0
  const v1::ShardState before = keeper_.shard.state();
  EXPECT_EQ(before.replicas_size(), 0) << "told when an epoch has ended";
  keeper_.shard.seal(2, keeper_.out);
  const v1::ShardState state = keeper_.shard.state();
  ASSERT_EQ(state.replicas_size(), 2);
  EXPECT_EQ(state.replicas(0).chunk(), 0u);
  EXPECT_EQ(state.replicas(0).version(), 1);
  EXPECT_EQ(state.replicas(1).chunk(), 2u);
  ShardBench again({}, rule("Momentum"));
  again.shard.seal(2, again.out);
  EXPECT_TRUE(again.shard.state().empty());
  for (const std::uint32_t chunk : {0u, 2u}) {
    const auto contents = keeper_.shard.give(2, chunk);
    ASSERT_TRUE(contents.ok()) << contents.status();
    ASSERT_TRUE(again.shard.takeOver(chunk, *contents).ok());
  }
  EXPECT_TRUE(again.shard.state().empty()) << "until the epoch is prepared";
  const Status opened = again.shard.open(2, planFor(1, 1), false, false);
  ASSERT_TRUE(opened.ok()) << opened;
  EXPECT_FALSE(again.shard.state().empty());
}

// Its server does not come back: who keeps the replicas takes them over.
TEST_F(ShardReplicasTest, BecomeTheirServersOwnChunks) {
  ASSERT_NO_FATAL_FAILURE(begin(1, planFor(0, 1)));
  for (const std::uint32_t chunk : {0u, 2u}) push(chunk, 0, 1);
  deliver();
  keeper_.shard.seal(2, keeper_.out);
  const std::string before = contents(keeper_, 0, 2);
  keeper_.shard.assign({1, 1, 1});
  keeper_.shard.replicate({}, false);
  keeper_.shard.adoptReplicas();
  EXPECT_EQ(contents(keeper_, 0, 2), before);
  EXPECT_EQ(keeper_.shard.parameterBytes(), 44u);
}

TEST_F(ShardReplicasTest, GoWithTheEpochThatNeedsThemNoMore) {
  ASSERT_NO_FATAL_FAILURE(begin(1, planFor(0, 1)));
  v1::ShardTable table;
  keeper_.shard.fillTable(table);
  EXPECT_EQ(table.replica_bytes(), 32u);
  keeper_.shard.seal(2, keeper_.out);
  keeper_.shard.replicate({}, false);
  EXPECT_EQ(keeper_.shard.replicaVersion(0), 0) << "until the epoch has begun";
  ASSERT_TRUE(keeper_.shard.open(2, planFor(0, 1), false, false).ok());
  keeper_.shard.release();
  EXPECT_EQ(keeper_.shard.replicaVersion(0), -1);
}

class ClippedReplicas : public ShardReplicasTest {
 protected:
  ClippedReplicas() : ShardReplicasTest("Momentum", 0.5) {}
};

TEST_F(ClippedReplicas, TakeTheStepAsItWasScaled) {
  ASSERT_NO_FATAL_FAILURE(begin(1, planFor(0, 1)));
  for (const std::uint32_t chunk : {0u, 2u}) push(chunk, 0, 3);
  EXPECT_TRUE(primary_.shard.takeUpdates().empty()) << "the norm is not known";
  primary_.shard.setNorm(1, 0, 4.0);
  while (primary_.shard.updateNext(primary_.out)) {
  }
  deliver();
  for (ShardBench* bench : {&primary_, &keeper_}) bench->shard.seal(2, bench->out);
  for (const std::uint32_t chunk : {0u, 2u})
    EXPECT_EQ(contents(primary_, chunk, 2), contents(keeper_, chunk, 2)) << chunk;
  const v1::ShardState state = keeper_.shard.state();
  ASSERT_TRUE(state.has_norm());
  EXPECT_EQ(state.norm().step(), 0);
  EXPECT_EQ(state.norm().norm(), 4.0);
}

// Of a server's chunks some have taken the step: the others take it with the norm that is known.
TEST_F(ClippedReplicas, ANormThatIsKnownIsNotAskedFor) {
  ASSERT_NO_FATAL_FAILURE(begin(1, planFor(0, 1)));
  primary_.shard.setNorm(1, 0, 4.0);
  push(0, 0, 3);
  EXPECT_TRUE(primary_.shard.updateNext(primary_.out));
  EXPECT_EQ(primary_.shard.takeUpdates().size(), 1u);
  push(2, 0, 3);
  EXPECT_TRUE(primary_.shard.updateNext(primary_.out));
  EXPECT_FALSE(primary_.shard.updateNext(primary_.out));
}

TEST(ChunkMoves, EachServerKeepsReplicasOfTheOneBefore) {
  v1::EpochInfo epoch;
  for (const std::uint32_t ps : {0u, 1u, 3u}) {
    v1::TaskId* id = epoch.add_members()->mutable_id();
    id->set_role(v1::ROLE_PS);
    id->set_index(ps);
  }
  const std::vector<int> map = {0, 1, 3, 0};
  EXPECT_EQ(ReplicaTargets(epoch).of(0, 0), -1);
  EXPECT_TRUE(chunksToReplicate(map, epoch, 1).empty());
  epoch.set_replicated(true);
  EXPECT_EQ(ReplicaTargets(epoch).of(0, 0), 1);
  EXPECT_EQ(ReplicaTargets(epoch).of(1, 0), 3);
  EXPECT_EQ(ReplicaTargets(epoch).of(3, 0), 0);
  EXPECT_THAT(chunksToReplicate(map, epoch, 1), ElementsAre(0u, 3u));
  EXPECT_THAT(chunksToReplicate(map, epoch, 3), ElementsAre(1u));
  EXPECT_THAT(chunksToReplicate(map, epoch, 0), ElementsAre(2u));
}

TEST(ChunkMoves, AWorkerKeepsReplicasOfAnOnlyServer) {
  v1::EpochInfo epoch;
  for (const v1::Role role : {v1::ROLE_PS, v1::ROLE_WORKER})
    epoch.add_members()->mutable_id()->set_role(role);
  const std::vector<int> map = {0, 0};
  EXPECT_FALSE(servesIn(epoch, kWorkerKeeper));
  epoch.set_replicated(true);
  EXPECT_TRUE(servesIn(epoch, 0));
  EXPECT_TRUE(servesIn(epoch, kWorkerKeeper));
  EXPECT_EQ(ReplicaTargets(epoch).of(0, 0), kWorkerKeeper);
  EXPECT_EQ(ReplicaTargets(epoch).of(kWorkerKeeper, 0), -1);
  EXPECT_TRUE(chunksToReplicate(map, epoch, 0).empty());
  EXPECT_THAT(chunksToReplicate(map, epoch, kWorkerKeeper), ElementsAre(0u, 1u));
  epoch.add_members()->mutable_id()->set_index(1);
  epoch.mutable_members(2)->mutable_id()->set_role(v1::ROLE_PS);
  EXPECT_FALSE(servesIn(epoch, kWorkerKeeper));
  EXPECT_EQ(ReplicaTargets(epoch).of(0, 0), 1);
}

}  // namespace
}  // namespace trainyard::runtime::ps
