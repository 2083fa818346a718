#include "runtime/ps/shard.h"

#include <limits>

#include "gmock/gmock.h"
#include "tests/runtime/ps/helpers.h"

namespace trainyard::runtime::ps {
namespace {

using testing::Each;
using testing::HasSubstr;

TEST(Shard, APushIsAnsweredByTheNextVersionOnceEveryRankHasPushed) {
  ShardBench b;
  b.open(3);
  const CallId first = b.push(0, 0, 2, 3);
  const CallId second = b.push(0, 0, 0, 1);
  EXPECT_TRUE(b.out.empty());
  const CallId third = b.push(0, 0, 1, 2);
  for (const CallId call : {first, second, third}) {
    const ChunkAnswer answer = b.take(call);
    ASSERT_EQ(answer.header.code(), v1::CHUNK_OK);
    EXPECT_EQ(answer.header.version(), 1);
    EXPECT_EQ(answer.header.epoch(), 1);
    EXPECT_EQ(answer.header.samples(), 3u);
    EXPECT_THAT(*answer.payload, Each(-2.0f));
  }
}

TEST(Shard, TwoVersionsAreReadableUntilTheNextStepIsThere) {
  ShardBench b;
  b.open(2);
  b.push(0, 0, 0, 1);
  b.push(0, 0, 1, 1);
  const ChunkAnswer old = b.take(b.pull(0, 0));
  ASSERT_EQ(old.header.code(), v1::CHUNK_OK);
  EXPECT_THAT(*old.payload, Each(0.0f));
  EXPECT_THAT(*b.take(b.pull(0, 1)).payload, Each(-1.0f));
  EXPECT_EQ(b.code(b.pull(0, 2)), v1::CHUNK_GONE);
  b.push(0, 1, 0, 5);
  EXPECT_EQ(b.code(b.pull(0, 0)), v1::CHUNK_OK) << "the gradient is kept, nothing is written yet";
  b.push(0, 1, 1, 5);  // takes the place of version 0, which `old` still holds
  EXPECT_EQ(b.code(b.pull(0, 0)), v1::CHUNK_GONE);
  EXPECT_THAT(*old.payload, Each(0.0f));
  EXPECT_THAT(*b.take(b.pull(0, 1)).payload, Each(-1.0f));
}

TEST(Shard, InRankOrderTheBitsDoNotDependOnTheOrderOfArrival) {
  const std::vector<float> values{1e8f, 1.0f, -1e8f};
  const auto run = [&](std::vector<std::uint32_t> order) {
    ShardBench b([](ShardConfig& c) { c.deterministic = true; });
    b.open(3);
    CallId last = 0;
    for (const std::uint32_t rank : order) last = b.push(0, 0, rank, values[rank]);
    return *b.take(last).payload;
  };
  const Weights expected = run({0, 1, 2});
  EXPECT_EQ(run({2, 0, 1}), expected);
  EXPECT_EQ(run({1, 2, 0}), expected);
}

TEST(Shard, ARepeatedPushCountsOnceAndEndsTheEarlierCall) {
  ShardBench b;
  b.open(2);
  const CallId first = b.push(0, 0, 0, 1);
  const CallId again = b.push(0, 0, 0, 1);
  EXPECT_EQ(b.code(first), v1::CHUNK_NOT_READY);
  const CallId other = b.push(0, 0, 1, 3);
  const ChunkAnswer answer = b.take(again);
  ASSERT_EQ(answer.header.code(), v1::CHUNK_OK);
  EXPECT_THAT(*answer.payload, Each(-2.0f));
  EXPECT_EQ(answer.header.samples(), 2u);
  EXPECT_EQ(b.code(other), v1::CHUNK_OK);
  // After the step a repetition gets the version that it has led to.
  const ChunkAnswer late = b.take(b.push(0, 0, 0, 1));
  EXPECT_EQ(late.header.code(), v1::CHUNK_OK);
  EXPECT_EQ(late.header.version(), 1);
  EXPECT_TRUE(b.out.empty());
}

TEST(Shard, RefusesWhatIsNotMeantForIt) {
  ShardBench b;
  EXPECT_EQ(b.code(b.push(0, 0, 0, 1)), v1::CHUNK_WRONG_EPOCH);  // not open
  b.open(2);
  auto h = b.header(0, 0, 0);
  const auto answer = [&](const v1::ChunkRequestHeader& header, std::size_t elements = 6) {
    return b.take(b.send(header, std::make_unique<LoggedPayload>(std::vector<float>(elements))));
  };
  h.set_job_uid("another");
  EXPECT_EQ(answer(h).header.code(), v1::CHUNK_WRONG_SERVER);
  h = b.header(0, 0, 0);
  *h.mutable_server() = incarnation(1, 2);
  EXPECT_EQ(answer(h).header.code(), v1::CHUNK_WRONG_SERVER);
  for (const std::uint32_t chunk : {1u, 3u, std::numeric_limits<std::uint32_t>::max()}) {
    h = b.header(0, 0, 0);
    h.set_chunk(chunk);
    EXPECT_EQ(answer(h).header.code(), v1::CHUNK_WRONG_SERVER) << chunk;
  }
  for (const std::int64_t epoch : {0, 2}) {
    h = b.header(0, 0, 0);
    h.set_epoch(epoch);
    const ChunkAnswer refused = answer(h);
    EXPECT_EQ(refused.header.code(), v1::CHUNK_WRONG_EPOCH);
    EXPECT_EQ(refused.header.epoch(), 1);
  }
  EXPECT_EQ(answer(b.header(0, 0, 2)).header.code(), v1::CHUNK_WRONG_EPOCH);  // two ranks only
  EXPECT_EQ(answer(b.header(0, 1, 0)).header.code(), v1::CHUNK_GONE);         // ahead
  const ChunkAnswer shorter = answer(b.header(0, 0, 0), 5);
  EXPECT_EQ(shorter.header.code(), v1::CHUNK_WRONG_SERVER);
  EXPECT_THAT(shorter.header.message(), HasSubstr("24 bytes, the request 20"));
  EXPECT_EQ(b.code(b.send(b.header(0, 0, 0), nullptr)), v1::CHUNK_WRONG_SERVER);
  // None of them has left a trace.
  b.push(0, 0, 0, 2);
  EXPECT_THAT(*b.take(b.push(0, 0, 1, 2)).payload, Each(-2.0f));
}

TEST(Shard, SealEndsParkedCallsAndDropsIncompleteSums) {
  ShardBench b;
  b.open(2);
  const CallId parked = b.push(0, 0, 0, 100);
  b.shard.seal(2, b.out);
  const ChunkAnswer ended = b.take(parked);
  EXPECT_EQ(ended.header.code(), v1::CHUNK_WRONG_EPOCH);
  EXPECT_EQ(ended.header.epoch(), 2);
  EXPECT_EQ(b.code(b.push(0, 0, 1, 1)), v1::CHUNK_WRONG_EPOCH);
  ASSERT_TRUE(b.shard.open(2, planFor(0, 2), false, false).ok());
  b.epoch = 2;
  b.push(0, 0, 0, 1);
  EXPECT_THAT(*b.take(b.push(0, 0, 1, 1)).payload, Each(-1.0f));
}

TEST(Shard, ALowerEpochDoesNotSeal) {
  ShardBench b;
  b.open(2);
  const CallId parked = b.push(0, 0, 0, 1);
  b.shard.seal(1, b.out);
  b.shard.seal(0, b.out);
  EXPECT_TRUE(b.out.empty());
  b.push(0, 0, 1, 1);
  EXPECT_EQ(b.code(parked), v1::CHUNK_OK);
}

TEST(Shard, InTheNewEpochCompleteChunksAnswerARepeatedStepAtOnce) {
  ShardBench b;
  b.open(2);
  b.push(0, 0, 0, 1);
  b.push(0, 0, 1, 1);   // chunk 0 is at 1
  b.push(2, 0, 0, 50);  // chunk 2 stays at 0
  b.shard.seal(2, b.out);
  EXPECT_EQ(b.shard.state().min_version(), 0);
  EXPECT_EQ(b.shard.state().max_version(), 1);
  ASSERT_TRUE(b.shard.open(2, planFor(0, 2), false, false).ok());
  b.epoch = 2;
  b.out.clear();
  const ChunkAnswer complete = b.take(b.push(0, 0, 0, 1));
  ASSERT_EQ(complete.header.code(), v1::CHUNK_OK);
  EXPECT_EQ(complete.header.version(), 1);
  EXPECT_EQ(complete.header.epoch(), 2);
  EXPECT_THAT(*complete.payload, Each(-1.0f));
  EXPECT_THAT(*b.take(b.pull(0, 0)).payload, Each(0.0f));  // for a worker that is new
  b.push(2, 0, 0, 4);
  EXPECT_THAT(*b.take(b.push(2, 0, 1, 4)).payload, Each(-4.0f));
}

TEST(Shard, OpensOnlyTheSealedEpochAtTheRightVersions) {
  ShardBench b;
  EXPECT_TRUE(b.shard.state().empty());
  b.shard.seal(3, b.out);
  const Status missing = b.shard.open(3, planFor(0, 2), false, false);
  EXPECT_EQ(missing.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("chunk 0 is at version -1"));
  b.load(5);
  EXPECT_TRUE(b.shard.state().empty()) << "until it is whole";
  EXPECT_FALSE(b.shard.open(2, planFor(5, 2), false, false).ok());
  EXPECT_FALSE(b.shard.open(3, planFor(3, 2), false, false).ok());
  EXPECT_FALSE(b.shard.open(3, planFor(6, 2), false, false).ok());
  EXPECT_TRUE(b.shard.open(3, planFor(4, 2), false, false).ok());
  EXPECT_FALSE(b.shard.state().empty());
}

TEST(Shard, AStallIsAnsweredWithTheRanksThatAreMissingAndThePushStays) {
  ShardBench b([](ShardConfig& c) { c.stall_limit = std::chrono::seconds(60); });
  b.open(4);
  b.push(0, 0, 1, 1);
  b.now += std::chrono::seconds(30);
  const CallId younger = b.push(0, 0, 2, 1);
  b.shard.onTick(kStart + std::chrono::seconds(59), b.out);
  EXPECT_TRUE(b.out.empty());
  b.shard.onTick(kStart + std::chrono::seconds(60), b.out);
  ASSERT_EQ(b.out.size(), 1u);
  EXPECT_EQ(b.out[0].header.code(), v1::CHUNK_NOT_READY);
  EXPECT_EQ(b.out[0].header.message(), "step 0 waits for workers of rank 0,3");
  b.out.clear();
  const CallId again = b.push(0, 0, 1, 1);
  b.push(0, 0, 0, 1);
  b.push(0, 0, 3, 1);
  EXPECT_THAT(*b.take(again).payload, Each(-1.0f));
  EXPECT_EQ(b.code(younger), v1::CHUNK_OK);
}

TEST(Shard, ACancelledCallGetsNoAnswerButItsGradientCounts) {
  ShardBench b;
  b.open(2);
  const CallId gone = b.push(0, 0, 0, 4);
  b.shard.onCancelled(gone);
  EXPECT_THAT(*b.take(b.push(0, 0, 1, 2)).payload, Each(-3.0f));
  EXPECT_EQ(b.take(gone).call, 0u);
}

TEST(Shard, ASumThatIsNotFiniteNamesTheVariableAndChangesNothing) {
  ShardBench b;
  b.open(2);
  const float infinity = std::numeric_limits<float>::infinity();
  const auto push = [&](std::uint32_t rank, float bad) {
    return b.send(b.header(0, 0, rank),
                  std::make_unique<LoggedPayload>(std::vector<float>{1, 1, 1, 1, bad, 1}));
  };
  const CallId first = push(0, infinity);
  const CallId second = push(1, -infinity);
  for (const CallId call : {first, second}) {
    const ChunkAnswer answer = b.take(call);
    EXPECT_EQ(answer.header.code(), v1::CHUNK_NON_FINITE);
    EXPECT_EQ(answer.payload, nullptr);
    EXPECT_EQ(answer.header.message(), "b");  // element 4 of the chunk: a has four
  }
  ASSERT_TRUE(b.shard.abort().has_value());
  EXPECT_EQ(b.shard.abort()->variable(), "b");
  EXPECT_EQ(b.shard.abort()->step(), 0);
  EXPECT_EQ(b.shard.state().max_version(), 0);
  EXPECT_THAT(*b.take(b.pull(0, 0)).payload, Each(0.0f));
}

TEST(Shard, WhereFloat16EndsIsSaidToo) {
  ShardBench b([](ShardConfig& c) { c.wire = ElementType::kFloat16; });
  b.open(1);
  b.push(0, 0, 0, std::numeric_limits<float>::infinity());
  ASSERT_TRUE(b.shard.abort().has_value());
  EXPECT_EQ(b.shard.abort()->reason(),
            "the sum of the gradients is not finite; training.wireType Float16 ends at 65,504");
}

TEST(Shard, TheLastChunkCarriesTheLossOfTheStep) {
  ShardBench b;
  b.open(2);
  for (const std::uint32_t rank : {1u, 0u}) {
    auto h = b.header(2, 0, rank);
    h.set_samples(10);
    h.set_loss_sum(rank + 0.5);
    h.set_hits(7 - rank);
    b.send(h, std::make_unique<LoggedPayload>(std::vector<float>(2)));
  }
  const ChunkAnswer answer = b.take(b.calls);
  EXPECT_EQ(answer.header.samples(), 20u);
  EXPECT_DOUBLE_EQ(answer.header.loss_sum(), 2.0);
  EXPECT_EQ(answer.header.hits(), 13);
  // And again for one that repeats its push.
  EXPECT_DOUBLE_EQ(b.take(b.push(2, 0, 1, 0)).header.loss_sum(), 2.0);
}

TEST(Shard, HitsThatOneHasNotCountedAreNotTold) {
  for (const std::uint32_t silent : {0u, 1u}) {
    ShardBench b;
    b.open(2);
    for (const std::uint32_t rank : {0u, 1u}) {
      auto h = b.header(2, 0, rank);
      h.set_samples(10);
      if (rank == silent) h.clear_hits();
      b.send(h, std::make_unique<LoggedPayload>(std::vector<float>(2)));
    }
    const ChunkAnswer answer = b.take(b.calls);
    EXPECT_EQ(answer.header.samples(), 20u);
    EXPECT_FALSE(answer.header.has_hits()) << silent;
  }
}

TEST(Shard, TheTableSaysWhatItHolds) {
  ShardBench b;
  b.open(2);
  v1::ShardTable table;
  b.shard.fillTable(table);
  ASSERT_EQ(table.entries_size(), 3);
  EXPECT_EQ(table.entries(0).variable(), "a");
  EXPECT_EQ(table.entries(1).variable(), "b");
  EXPECT_EQ(table.entries(2).variable(), "d");
  EXPECT_EQ(table.entries(2).chunk(), 2u);
  EXPECT_EQ(table.bytes(), 8u * 4);
  EXPECT_EQ(b.shard.parameterBytes(), 8u * 4);
  EXPECT_EQ(table.epoch(), 1);
}

// Steps 0 and 1 of the job: six samples for three ranks, then one, which is rank 0's.
StepPlan shortEnd() {
  StepPlan plan = planFor(0, 3, 2);
  plan.step_samples = 6;
  plan.end_position = 7;
  return plan;
}

TEST(Shard, AShortStepWaitsOnlyForRanksWithSamples) {
  for (const bool deterministic : {false, true}) {
    ShardBench b([&](ShardConfig& c) { c.deterministic = deterministic; });
    b.open(shortEnd());
    for (std::uint32_t rank = 0; rank < 3; ++rank) b.push(0, 0, rank, 1);
    b.out.clear();
    const CallId waits = b.send(b.header(0, 1, 2), nullptr);
    EXPECT_TRUE(b.out.empty());
    const CallId pushed = b.push(0, 1, 0, 5);
    for (const CallId call : {waits, pushed}) {
      const ChunkAnswer answer = b.take(call);
      ASSERT_EQ(answer.header.code(), v1::CHUNK_OK);
      EXPECT_EQ(answer.header.version(), 2);
      EXPECT_EQ(answer.header.samples(), 1u);
      EXPECT_THAT(*answer.payload, Each(-6.0f));  // not diluted by the ranks without samples
    }
    // Who asks late is answered at once.
    EXPECT_EQ(b.take(b.send(b.header(0, 1, 1), nullptr)).header.version(), 2);
  }
}

// A gradient of rank `rank` that has this place in step 0, where two of three make the step.
CallId pushPlaced(ShardBench& b, std::uint32_t rank, std::uint32_t place, float value) {
  v1::ChunkRequestHeader header = b.header(0, 0, rank);
  header.set_place(place);
  return b.send(header, std::make_unique<LoggedPayload>(std::vector<float>(b.elements(0), value)));
}

StepPlan withOneBackup() {
  StepPlan plan = planFor(0, 3);
  plan.backup_workers = 1;
  return plan;
}

TEST(Shard, WithBackupWorkersGradientsAreToldApartByPlace) {
  ShardBench b;
  b.open(withOneBackup());
  const CallId waits = b.send(b.header(0, 0, 0), nullptr);  // too late for a place
  const CallId first = pushPlaced(b, 2, 0, 4);
  const CallId again = pushPlaced(b, 2, 0, 4);
  EXPECT_EQ(b.code(first), v1::CHUNK_NOT_READY);
  EXPECT_TRUE(b.out.empty());
  const CallId second = pushPlaced(b, 1, 1, 2);
  for (const CallId call : {waits, again, second}) {
    const ChunkAnswer answer = b.take(call);
    ASSERT_EQ(answer.header.code(), v1::CHUNK_OK);
    EXPECT_EQ(answer.header.version(), 1);
    EXPECT_EQ(answer.header.samples(), 2u);
    EXPECT_THAT(*answer.payload, Each(-3.0f));
  }
}

TEST(Shard, AStallWithBackupWorkersNamesNoRank) {
  ShardBench b([](ShardConfig& c) { c.stall_limit = std::chrono::seconds(60); });
  b.open(withOneBackup());
  pushPlaced(b, 2, 1, 4);
  b.shard.onTick(kStart + std::chrono::seconds(60), b.out);
  ASSERT_EQ(b.out.size(), 1U);
  EXPECT_EQ(b.out[0].header.message(), "step 0 waits for 1 of 2 gradients");
}

TEST(Shard, APlaceThatTheStepDoesNotHaveIsRefused) {
  ShardBench b;
  b.open(withOneBackup());
  const ChunkAnswer refused = b.take(pushPlaced(b, 0, 2, 1));
  EXPECT_EQ(refused.header.code(), v1::CHUNK_WRONG_EPOCH);
  EXPECT_EQ(refused.header.message(), "place 2 of 2");
  EXPECT_EQ(b.shard.state().max_version(), 0);
}

TEST(Shard, ARankWithoutSamplesMayBeAStepBehind) {
  ShardBench b;
  b.open(shortEnd());
  for (std::uint32_t rank = 0; rank < 3; ++rank) b.push(0, 0, rank, 1);
  b.push(0, 1, 0, 5);
  b.out.clear();
  // The answer of step 0 was lost on its way to rank 2, and it asks again.
  const ChunkAnswer answer = b.take(b.push(0, 0, 2, 1));
  ASSERT_EQ(answer.header.code(), v1::CHUNK_OK);
  EXPECT_EQ(answer.header.version(), 1);
  EXPECT_EQ(answer.header.samples(), 3u);
  EXPECT_THAT(*answer.payload, Each(-1.0f));
}

TEST(Shard, ARepeatedWaitEndsTheEarlierCall) {
  ShardBench b;
  b.open(shortEnd());
  for (std::uint32_t rank = 0; rank < 3; ++rank) b.push(0, 0, rank, 1);
  b.out.clear();
  const CallId first = b.send(b.header(0, 1, 2), nullptr);
  const CallId again = b.send(b.header(0, 1, 2), nullptr);
  EXPECT_EQ(b.code(first), v1::CHUNK_NOT_READY);
  b.push(0, 1, 0, 5);
  EXPECT_EQ(b.code(again), v1::CHUNK_OK);
}

TEST(Shard, BehindTheLastStepThereIsNone) {
  ShardBench b;
  b.open(shortEnd());
  for (std::uint32_t rank = 0; rank < 3; ++rank) b.push(0, 0, rank, 1);
  b.push(0, 1, 0, 5);
  b.out.clear();
  EXPECT_EQ(b.code(b.push(0, 2, 0, 5)), v1::CHUNK_GONE);
  EXPECT_EQ(b.code(b.push(0, 1, 3, 5)), v1::CHUNK_OK) << "complete whoever asks";
  EXPECT_EQ(b.shard.state().max_version(), 2);
}

}  // namespace
}  // namespace trainyard::runtime::ps
