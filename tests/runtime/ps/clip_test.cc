// Clipping in a server: means wait for the norm, and all of the server's chunks take the step, or
// none.
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "gmock/gmock.h"
#include "runtime/ps/ps_machine.h"
#include "tests/runtime/ps/helpers.h"

namespace trainyard::runtime::ps {
namespace {

using testing::Each;
using testing::FloatEq;
using testing::HasSubstr;

void clip(ShardConfig& config) {
  config.clip_norm = 2;
}

// ps-0's chunks 0 (6 elements) and 2 (2 elements); chunk 1 is on another server.
struct ClipBench : ShardBench {
  explicit ClipBench(const std::function<void(ShardConfig&)>& change = clip) : ShardBench(change) {}
  // Updates all that can be; how many chunks.
  int update() {
    int updated = 0;
    while (shard.updateNext(out)) ++updated;
    return updated;
  }
  double partNorm() {
    const v1::SquareSum part = shard.state().squares();
    const auto sum =
        SquareSum::fromLimbs({part.limbs().data(), static_cast<std::size_t>(part.limbs_size())});
    EXPECT_TRUE(sum.has_value());
    return sum ? sum->norm() : -1;
  }
};

TEST(Clipping, ACompleteChunkWaitsForTheNormOfAll) {
  ClipBench b;
  b.open(2);
  const CallId a0 = b.push(0, 0, 0, 2);
  const CallId a1 = b.push(0, 0, 1, 4);  // mean 3
  EXPECT_TRUE(b.out.empty());
  EXPECT_FALSE(b.shard.takeUrgent());
  EXPECT_FALSE(b.shard.state().has_squares()) << "only one of two chunks";
  const CallId c0 = b.push(2, 0, 0, 5);
  const CallId c1 = b.push(2, 0, 1, 5);
  EXPECT_TRUE(b.out.empty());
  EXPECT_TRUE(b.shard.takeUrgent());
  EXPECT_FALSE(b.shard.takeUrgent()) << "once a step";
  EXPECT_EQ(b.shard.state().squares().step(), 0);
  EXPECT_EQ(b.partNorm(), std::sqrt(6 * 9.0 + 2 * 25.0));
  EXPECT_EQ(b.update(), 0);
  EXPECT_EQ(b.shard.state().max_version(), 0);
  EXPECT_THAT(*b.take(b.pull(0, 0)).payload, Each(0.0f)) << "the version stays readable";

  b.shard.setNorm(1, 0, 16);  // with another server's part: clipped to 2 / 16
  EXPECT_EQ(b.update(), 2);
  for (const CallId call : {a0, a1}) {
    const ChunkAnswer answer = b.take(call);
    ASSERT_EQ(answer.header.code(), v1::CHUNK_OK);
    EXPECT_EQ(answer.header.version(), 1);
    EXPECT_THAT(*answer.payload, Each(-3.0f / 8));
    EXPECT_FALSE(answer.header.has_gradient_norm()) << "with the last chunk only";
  }
  for (const CallId call : {c0, c1}) {
    const ChunkAnswer answer = b.take(call);
    EXPECT_THAT(*answer.payload, Each(-5.0f / 8));
    EXPECT_EQ(answer.header.gradient_norm(), 16);
  }
  EXPECT_EQ(b.shard.state().squares().step(), 0) << "kept for the others";
}

TEST(Clipping, AGradientThatIsShortEnoughKeepsItsBits) {
  ClipBench b;
  b.open(1);
  const CallId first = b.push(0, 0, 0, 0.1f);
  b.push(2, 0, 0, 0.3f);
  b.shard.setNorm(1, 0, 2);  // exactly clip_norm
  EXPECT_EQ(b.update(), 2);
  EXPECT_THAT(*b.take(first).payload, Each(-0.1f));
}

TEST(Clipping, AServerThatHoldsAllNeedsNobody) {
  v1::OptimizerSpec spec = descent();
  spec.set_learning_rate(0.5);
  Placement p = smallPlacement();
  for (Chunk& chunk : p.chunks) chunk.ps = 0;
  const auto optimizer = make(spec);
  Shard shard(ShardBench::with(clip), p, *optimizer, LearningRate(spec));
  std::vector<ChunkAnswer> out;
  shard.seal(1, out);
  for (const Chunk& chunk : p.chunks)
    shard.load(chunk.id, 0, std::vector<float>(static_cast<std::size_t>(chunk.elements)), {});
  ASSERT_TRUE(shard.open(1, planFor(0, 1), false, true).ok());
  for (const Chunk& chunk : p.chunks) {
    v1::ChunkRequestHeader h;
    h.set_job_uid(kJob);
    *h.mutable_server() = incarnation(1, 1);
    h.set_epoch(1);
    h.set_chunk(chunk.id);
    h.set_samples(4);
    const std::vector<float> values(static_cast<std::size_t>(chunk.elements),
                                    static_cast<float>(chunk.id) - 7.5f);
    EXPECT_FALSE(shard.updateNext(out));
    shard.onRequest(h, std::make_unique<LoggedPayload>(values), chunk.id + 1, kStart, out);
  }
  EXPECT_FALSE(shard.takeUrgent());
  EXPECT_FALSE(shard.state().has_squares());
  while (shard.updateNext(out)) {
  }
  ASSERT_EQ(out.size(), 3u);
  // One step of plain descent moves the weights by learning rate x clip_norm.
  double squares = 0;
  for (const ChunkAnswer& answer : out) {
    for (const float w : *answer.payload) squares += static_cast<double>(w) * w;
  }
  EXPECT_NEAR(std::sqrt(squares), 0.5 * 2, 1e-6);
  for (const ChunkAnswer& answer : out) {
    if (answer.header.chunk() != 2) continue;
    const double want =
        std::sqrt(6 * 7.5 * 7.5 + 3 * 6.5 * 6.5 + 2 * 5.5 * 5.5) / 4;  // sums of 4 samples
    EXPECT_DOUBLE_EQ(answer.header.gradient_norm(), want);
  }
}

TEST(Clipping, ANormOfAnotherStepOrEpochIsIgnored) {
  ClipBench b;
  b.open(1);
  b.push(0, 0, 0, 1);
  EXPECT_EQ(b.update(), 0);
  b.push(2, 0, 0, 1);
  b.shard.setNorm(1, 1, 4);
  b.shard.setNorm(1, -1, 4);
  b.shard.setNorm(2, 0, 4);
  b.shard.setNorm(0, 0, 4);
  EXPECT_EQ(b.update(), 0);
  b.shard.setNorm(1, 0, 4);
  EXPECT_EQ(b.update(), 2);
  b.shard.setNorm(1, 0, 4);
  EXPECT_EQ(b.update(), 0);
}

TEST(Clipping, TheNextStepFollows) {
  ClipBench b;
  b.open(2);
  for (std::int64_t step = 0; step < 3; ++step) {
    for (const std::uint32_t chunk : {2u, 0u}) {
      b.push(chunk, step, 0, 1);
      b.push(chunk, step, 1, 1);
    }
    EXPECT_TRUE(b.shard.takeUrgent());
    EXPECT_EQ(b.shard.state().squares().step(), step);
    b.shard.setNorm(1, step, 1);
    EXPECT_EQ(b.update(), 2);
    EXPECT_EQ(b.shard.state().min_version(), step + 1);
  }
}

TEST(Clipping, ARepeatedPushWaitsInPlaceOfTheEarlierCall) {
  ClipBench b;
  b.open(1);
  const CallId first = b.push(0, 0, 0, 1);
  const CallId again = b.push(0, 0, 0, 1);
  EXPECT_EQ(b.code(first), v1::CHUNK_NOT_READY);
  b.push(2, 0, 0, 1);
  EXPECT_EQ(b.partNorm(), std::sqrt(8.0)) << "counted once";
  b.shard.setNorm(1, 0, 1);
  b.update();
  EXPECT_EQ(b.code(again), v1::CHUNK_OK);
  EXPECT_EQ(b.code(b.push(0, 0, 0, 1)), v1::CHUNK_OK) << "complete: answered at once";
}

TEST(Clipping, AnEpochThatEndsBeforeTheNormDropsTheStep) {
  ClipBench b;
  b.open(1);
  const CallId parked = b.push(0, 0, 0, 50);
  b.push(2, 0, 0, 50);
  b.shard.seal(2, b.out);
  EXPECT_EQ(b.code(parked), v1::CHUNK_WRONG_EPOCH);
  EXPECT_FALSE(b.shard.state().has_squares());
  b.shard.setNorm(1, 0, 1);
  b.shard.setNorm(2, 0, 1);
  EXPECT_EQ(b.update(), 0);
  EXPECT_EQ(b.shard.state().max_version(), 0);
  ASSERT_TRUE(b.shard.open(2, planFor(0, 1), false, false).ok());
  b.epoch = 2;
  b.out.clear();
  const CallId call = b.push(0, 0, 0, 1);
  b.push(2, 0, 0, 1);
  EXPECT_EQ(b.partNorm(), std::sqrt(8.0)) << "nothing of the former sums is left";
  b.shard.setNorm(2, 0, 1);
  EXPECT_EQ(b.update(), 2);
  EXPECT_THAT(*b.take(call).payload, Each(-1.0f));
}

TEST(Clipping, AnEpochThatEndsAfterTheNormCompletesTheStep) {
  ClipBench b;
  b.open(1);
  b.push(0, 0, 0, 4);
  b.push(2, 0, 0, 4);
  b.shard.setNorm(1, 0, 16);
  EXPECT_TRUE(b.shard.updateNext(b.out));  // one of two
  b.shard.seal(2, b.out);
  EXPECT_EQ(b.shard.state().min_version(), 1) << "all of a server's chunks or none";
  // What others that were not told the norm in time still need.
  EXPECT_EQ(b.shard.state().squares().step(), 0);
  EXPECT_EQ(b.partNorm(), std::sqrt(8 * 16.0));
  ASSERT_TRUE(b.shard.open(2, planFor(0, 1), false, false).ok());
  b.epoch = 2;
  b.out.clear();
  b.shard.setNorm(2, 0, 16);
  EXPECT_EQ(b.update(), 0) << "it has taken that step";
  EXPECT_THAT(*b.take(b.push(0, 0, 0, 4)).payload, Each(-0.5f));
  b.shard.seal(3, b.out);
  EXPECT_EQ(b.shard.state().squares().step(), 0) << "still kept";
}

TEST(Clipping, WhatIsLoadedAnewHasNoPart) {
  ClipBench b;
  b.open(1);
  b.push(0, 0, 0, 1);
  b.push(2, 0, 0, 1);
  b.shard.setNorm(1, 0, 1);
  b.update();
  b.shard.seal(2, b.out);
  EXPECT_TRUE(b.shard.state().has_squares());
  b.load(0);
  EXPECT_FALSE(b.shard.state().has_squares());
}

TEST(Clipping, ASnapshotIsOfAVersionNotOfAMean) {
  ClipBench b;
  b.open(1);
  b.push(0, 0, 0, 1);
  b.push(2, 0, 0, 1);
  ASSERT_TRUE(b.shard.arm(0));
  while (b.shard.captureNext()) {
  }
  const auto now = b.shard.takeSnapshot();
  ASSERT_TRUE(now.has_value());
  EXPECT_THAT(*now->chunks[0].weights, Each(0.0f));
  ASSERT_TRUE(b.shard.arm(1));
  b.shard.setNorm(1, 0, 4);
  EXPECT_FALSE(b.shard.takeSnapshot().has_value());
  b.update();
  const auto next = b.shard.takeSnapshot();
  ASSERT_TRUE(next.has_value());
  EXPECT_THAT(*next->chunks[0].weights, Each(-0.5f));
}

TEST(Clipping, AMeanThatIsNotFiniteIsRefusedAndNeverCounts) {
  ClipBench b;
  b.open(1);
  b.push(2, 0, 0, 1);
  const CallId bad = b.push(0, 0, 0, std::numeric_limits<float>::infinity());
  EXPECT_EQ(b.code(bad), v1::CHUNK_NON_FINITE);
  ASSERT_TRUE(b.shard.abort().has_value());
  EXPECT_EQ(b.shard.abort()->variable(), "a");
  EXPECT_FALSE(b.shard.takeUrgent());
  EXPECT_FALSE(b.shard.state().has_squares());
  EXPECT_EQ(b.update(), 0);
}

TEST(Clipping, TheLargestGradientsHaveAFiniteNorm) {
  ClipBench b;
  b.open(1);
  const float huge = std::numeric_limits<float>::max();
  const CallId call = b.push(0, 0, 0, huge);
  b.push(2, 0, 0, huge);
  const double norm = b.partNorm();
  EXPECT_DOUBLE_EQ(norm, std::sqrt(8.0) * static_cast<double>(huge));
  b.shard.setNorm(1, 0, norm);
  b.update();
  EXPECT_THAT(*b.take(call).payload, Each(FloatEq(static_cast<float>(-2 / std::sqrt(8.0)))));
}

TEST(Clipping, AStallNamesWhatIsMissing) {
  ClipBench b;
  b.open(1);
  b.push(0, 0, 0, 1);
  b.push(2, 0, 0, 1);
  b.shard.onTick(kStart + std::chrono::seconds(60), b.out);
  ASSERT_EQ(b.out.size(), 2u);
  EXPECT_EQ(b.out[0].header.code(), v1::CHUNK_NOT_READY);
  EXPECT_THAT(b.out[0].header.message(),
              HasSubstr("step 0 waits for the norm of all servers' gradients"));
}

TEST(Clipping, ThreadsShareTheUpdates) {
  ClipBench b;
  b.ShardBench::open(planFor(0, 1, 200));
  for (std::int64_t step = 0; step < 200; ++step) {
    b.push(0, step, 0, 1);
    b.push(2, step, 0, 1);
    b.shard.setNorm(1, step, 1);
    std::atomic<int> updated = 0;
    {
      std::vector<std::jthread> threads;
      for (int t = 0; t < 3; ++t) {
        threads.emplace_back([&] {
          std::vector<ChunkAnswer> out;
          while (b.shard.updateNext(out)) ++updated;
        });
      }
    }
    ASSERT_EQ(updated, 2);
    ASSERT_EQ(b.shard.state().min_version(), step + 1);
  }
}

TEST(Clipping, TheMachinePassesTheNormOnWhileTheJobRuns) {
  ClipBench b;
  PsMachine machine(b.shard);
  v1::View view;
  *view.mutable_coordinator() = incarnation(1, 1);
  view.mutable_epoch()->set_epoch(1);
  view.mutable_epoch()->set_fresh(true);
  view.mutable_epoch()->set_steps(1);
  view.mutable_epoch()->set_step_samples(1);
  view.mutable_epoch()->add_members()->mutable_id()->set_role(v1::ROLE_PS);
  view.mutable_epoch()->add_members()->mutable_id()->set_role(v1::ROLE_WORKER);
  view.set_stop_at(-1);
  view.set_checkpoint_at(-1);
  const auto see = [&](v1::Phase phase) {
    view.set_phase(phase);
    view.set_sequence(view.sequence() + 1);
    machine.onView(view, b.out);
  };
  see(v1::PHASE_PREPARING);
  b.load();
  machine.onPrepared(*machine.takePrepare(), absl::OkStatus());
  b.epoch = 1;
  see(v1::PHASE_ACTIVE);
  b.push(0, 0, 0, 1);
  b.push(2, 0, 0, 1);
  v1::MemberReport report;
  machine.fillReport(report);
  EXPECT_EQ(report.shard().squares().step(), 0);
  EXPECT_EQ(b.update(), 0);
  view.mutable_gradient_norm()->set_step(0);
  view.mutable_gradient_norm()->set_norm(8);
  see(v1::PHASE_STOPPING);  // the step in progress may still be completed
  EXPECT_EQ(b.update(), 2);
}

}  // namespace
}  // namespace trainyard::runtime::ps
