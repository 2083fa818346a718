// The first worker keeps replicas of an only server's chunks.
#include "tests/runtime/coordinator/bench.h"

namespace trainyard::runtime {
namespace {

constexpr int kKeptChunks = 3;
constexpr std::uint32_t kPort = 4711;

// One server, two workers, of which the first says where it listens.
struct Alone : Bench {
  explicit Alone(std::uint32_t start = 1, bool listens = true)
      : Bench(1, 2, [&](CoordinatorConfig& config) {
          for (int i = 0; i < kKeptChunks; ++i) config.chunks.push_back({1000, 0, false});
          config.grid_ps = 1;
          config.self = incarnation(1, start);
        }) {
    v1::Membership placed = members(1, 2, 2);
    for (v1::MemberTask& task : *placed.mutable_tasks()) task.set_ip("10.0.0.7");
    c.setMembership(placed, now);
    if (listens) worker(0).set_keeper_port(kPort);
    clear(worker(0));
  }
  void keep(std::int64_t version) {
    v1::ShardState* shard = worker(0).mutable_shard();
    shard->set_empty(false);
    shard->clear_replicas();
    for (std::uint32_t i = 0; i < kKeptChunks; ++i) {
      v1::ChunkReplica* replica = shard->add_replicas();
      replica->set_chunk(i);
      replica->set_version(version);
    }
  }
  void prepareWorker() {
    worker(0).set_prepared_epoch(epoch());
    settle();
  }
};

TEST(CoordinatorKeeper, AnEpochNeedsItsReplicas) {
  Alone b;
  b.settle();
  ASSERT_EQ(b.c.phase(), v1::PHASE_PREPARING);
  EXPECT_TRUE(b.last_view.epoch().replicated());
  ASSERT_EQ(b.last_view.epoch().sources_size(), 2);
  EXPECT_EQ(b.last_view.epoch().sources(1).ps(), static_cast<std::uint32_t>(kWorkerKeeper));
  EXPECT_EQ(b.last_view.epoch().sources(1).address(), "10.0.0.7:4711");
  EXPECT_EQ(b.c.waitingFor(b.now), "worker-0");
  b.prepareWorker();
  EXPECT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
}

TEST(CoordinatorKeeper, WhereItCannotBeReachedThereAreNone) {
  Alone b(1, false);
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
  EXPECT_FALSE(b.last_view.epoch().replicated());
}

TEST(CoordinatorKeeper, GivesWhatAServerThatStartsAgainHasLost) {
  Alone former;
  former.settle();
  former.prepareWorker();
  former.reach(10);
  const v1::EpochInfo before = former.last_view.epoch();

  Alone b(2);
  b.prepares = false;
  for (const std::uint32_t worker : {0u, 1u}) {
    b.worker(worker) = former.worker(worker);
    *b.worker(worker).mutable_begun() = before;
  }
  b.keep(10);
  b.restart(b.ps());
  b.settle();
  ASSERT_EQ(b.c.phase(), v1::PHASE_PREPARING) << b.c.waitingFor(b.now);
  const v1::EpochInfo& epoch = b.last_view.epoch();
  EXPECT_EQ(epoch.first_step(), 10);
  EXPECT_FALSE(epoch.fresh());
  ASSERT_EQ(epoch.former_ps_size(), kKeptChunks);
  for (int i = 0; i < kKeptChunks; ++i) {
    EXPECT_EQ(epoch.former_ps(i), kWorkerKeeper);
    EXPECT_EQ(epoch.chunk_ps(i), 0);
  }
  EXPECT_EQ(b.last_view.lost_steps(), 0);
}

// Worker-0 has lost them with its life: the server still has all.
TEST(CoordinatorKeeper, MayDieItself) {
  Alone b;
  b.settle();
  b.prepareWorker();
  b.reach(10);
  b.restart(b.worker(0));
  b.worker(0).set_keeper_port(kPort + 1);
  Bench::clear(b.worker(0));
  b.settle();
  ASSERT_EQ(b.c.phase(), v1::PHASE_PREPARING);
  EXPECT_EQ(b.last_view.epoch().first_step(), 10);
  EXPECT_EQ(b.last_view.epoch().former_ps_size(), 0);
  EXPECT_EQ(b.last_view.epoch().sources(1).address(), "10.0.0.7:4712");
  EXPECT_EQ(b.c.waitingFor(b.now), "worker-0");
}

TEST(CoordinatorKeeper, ItsProblemFailsTheJob) {
  Alone b;
  b.settle();
  b.worker(0).mutable_shard()->set_problem("chunk 1: it has no version");
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_FAILED);
  EXPECT_EQ(b.c.failure(), "worker-0: chunk 1: it has no version");
}

}  // namespace
}  // namespace trainyard::runtime
