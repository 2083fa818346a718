// Parts of tables that are copied while the job computes.
#include <set>

#include "gmock/gmock.h"
#include "tests/runtime/coordinator/bench.h"

namespace trainyard::runtime {
namespace {

using std::chrono::seconds;
using testing::Each;
using testing::ElementsAre;

constexpr int kAll = 6;  // two chunks, then four parts

void withParts(CoordinatorConfig& config) {
  for (const int ps : {0, 1}) config.chunks.push_back({.bytes = 1000, .ps = ps});
  for (const int ps : {0, 0, 1, 1}) config.chunks.push_back({.bytes = 0, .ps = ps, .rows = true});
  config.grid_ps = 2;
}

std::vector<int> listed(const google::protobuf::RepeatedField<int>& field) {
  return {field.begin(), field.end()};
}

// Two servers and two workers with ten steps behind them; who copies says so when a test has it say
// so.
struct CopiesBench : Bench {
  explicit CopiesBench(const std::function<void(CoordinatorConfig&)>& change = {})
      : Bench(2, 2, [&](CoordinatorConfig& config) {
          withParts(config);
          if (change) change(config);
        }) {
    activate();
    reach(10);
  }
  void keepReplicas(std::uint32_t keeper, const std::vector<std::uint32_t>& numbers,
                    std::int64_t version) {
    ps(keeper).mutable_shard()->clear_replicas();
    for (const std::uint32_t number : numbers) {
      v1::ChunkReplica* replica = ps(keeper).mutable_shard()->add_replicas();
      replica->set_chunk(number);
      replica->set_version(version);
    }
  }
  // Its process is another one; the other server has replicas of what it held.
  void loseTheSecond() {
    keepReplicas(0, {1, 4, 5}, 10);
    restart(ps(1));
    settle();
  }
  void copied(std::uint32_t server) {
    ps(server).mutable_shard()->set_copied_epoch(epoch());
    settle();
  }
  const v1::EpochInfo& info() const { return last_view.epoch(); }
  int unguarded() const { return c.progress(now).unguarded_parts(); }
};

TEST(CoordinatorCopies, AfterADeathTheEpochBeginsWithWhoHasTheParts) {
  CopiesBench b;
  b.loseTheSecond();
  ASSERT_EQ(b.c.phase(), v1::PHASE_ACTIVE) << "nothing but a chunk had to be prepared";
  EXPECT_EQ(b.epoch(), 2);
  EXPECT_THAT(listed(b.info().chunk_ps()), ElementsAre(0, 1, 0, 0, 0, 0));
  EXPECT_THAT(listed(b.info().former_ps()), Each(0));
  EXPECT_THAT(listed(b.info().replica_ps()), ElementsAre(1, 0, -1, -1, -1, -1));
  EXPECT_THAT(listed(b.info().target_ps()), ElementsAre(0, 1, 0, 0, 1, 1));
  ASSERT_EQ(b.info().copies_size(), 4);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(b.info().copies(i).chunk(), static_cast<std::uint32_t>(2 + i));
    EXPECT_EQ(b.info().copies(i).ps(), 1);
  }
  EXPECT_EQ(b.unguarded(), 4);
  EXPECT_EQ(
      b.logged(
          "of 4 parts of tables 4 are in one place only; while training goes on ps-1 copies 4"),
      1);

  b.reach(15);
  EXPECT_EQ(b.epoch(), 2) << "nobody waits for it";
  b.prepares = false;
  b.copied(1);
  ASSERT_EQ(b.c.phase(), v1::PHASE_PREPARING);
  EXPECT_EQ(b.logged("epoch 2 ends: at step 15 the parts of tables are copied"), 1);
  EXPECT_EQ(b.info().first_step(), 15);
  EXPECT_TRUE(b.info().target_ps().empty() && b.info().replica_ps().empty() &&
              b.info().copies().empty());
  EXPECT_THAT(listed(b.info().chunk_ps()), ElementsAre(0, 1, 0, 0, 1, 1));
  EXPECT_THAT(listed(b.info().former_ps()), ElementsAre(0, 1, 0, 0, 0, 0))
      << "of whom they were copied";
  EXPECT_EQ(b.unguarded(), 4) << "until it has begun";
  for (const std::uint32_t server : {0, 1}) b.ps(server).set_prepared_epoch(b.epoch());
  b.say(b.ps(0));
  b.say(b.ps(1));
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
  EXPECT_EQ(b.unguarded(), 0);
  EXPECT_EQ(b.last_view.lost_steps(), 0);
  b.reach(20);
  EXPECT_EQ(b.epoch(), 3) << "that is all";
}

// A coordinator that came in its place would go on from the epoch before.
TEST(CoordinatorCopies, PartsAreGuardedOnceAnotherHasSeenTheEpochCompute) {
  CopiesBench b;
  b.loseTheSecond();
  b.prepares = false;
  b.copied(1);
  ASSERT_EQ(b.c.phase(), v1::PHASE_PREPARING);
  for (const std::uint32_t server : {1, 0}) {
    b.ps(server).set_prepared_epoch(b.epoch());
    b.say(b.ps(server));
  }
  ASSERT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
  EXPECT_EQ(b.unguarded(), 4);
  b.say(b.worker(0));
  b.say(b.worker(0));
  EXPECT_EQ(b.unguarded(), 0);
}

// What it had copied went with it.
TEST(CoordinatorCopies, AProcessThatWasStartedSinceHasCopiedNothing) {
  CopiesBench b;
  b.loseTheSecond();
  b.ps(1).mutable_shard()->set_copied_epoch(2);
  b.restart(b.ps(1));
  b.settle();
  ASSERT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
  EXPECT_EQ(b.epoch(), 3);
  EXPECT_THAT(listed(b.info().chunk_ps()), ElementsAre(0, 1, 0, 0, 0, 0));
  EXPECT_EQ(b.info().copies_size(), 4);
  EXPECT_EQ(b.last_view.lost_steps(), 0) << "its chunk has had a replica again";
}

// An epoch that ends for another reason takes nothing away.
TEST(CoordinatorCopies, AWorkersDeathLeavesThemWhereTheyAre) {
  CopiesBench b;
  b.loseTheSecond();
  b.restart(b.worker(1));
  b.settle();
  ASSERT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
  EXPECT_EQ(b.epoch(), 3);
  EXPECT_THAT(listed(b.info().target_ps()), ElementsAre(0, 1, 0, 0, 1, 1));
  b.ps(1).mutable_shard()->set_copied_epoch(2);  // of an epoch that is over
  b.settle();
  EXPECT_EQ(b.epoch(), 3);
  b.copied(1);
  EXPECT_EQ(b.epoch(), 4);
  EXPECT_TRUE(b.info().target_ps().empty());
}

TEST(CoordinatorCopies, WithTheirHolderPartsThatNobodyElseHasAreLost) {
  CopiesBench b;
  b.loseTheSecond();
  b.keepReplicas(1, {0}, 10);
  b.restart(b.ps(0));
  b.settle();
  EXPECT_TRUE(b.info().fresh());
  EXPECT_TRUE(b.info().chunk_ps().empty() && b.info().copies().empty())
      << "all is loaded where it is to be";
}

TEST(CoordinatorCopies, AServerThatLeavesStaysUntilOthersHaveItsParts) {
  CopiesBench b([](CoordinatorConfig& config) { config.replicate = false; });
  b.rescale(1, 2, 2);
  b.settle();
  ASSERT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
  EXPECT_EQ(b.epoch(), 2);
  EXPECT_EQ(b.info().members_size(), 4);
  EXPECT_THAT(listed(b.info().chunk_ps()), ElementsAre(0, 0, 0, 0, 1, 1));
  b.reach(20);
  b.tick(seconds(2));
  b.settle();
  EXPECT_EQ(b.epoch(), 2) << "it is not due";
  EXPECT_FALSE(b.ps(1).leaving());
  EXPECT_EQ(b.unguarded(), 0) << "nobody has asked for replicas";
  b.copied(0);
  EXPECT_EQ(b.epoch(), 3);
  EXPECT_EQ(b.info().members_size(), 3);
  EXPECT_TRUE(b.ps(1).leaving());
  EXPECT_EQ(b.last_view.lost_steps(), 0);
}

TEST(CoordinatorCopies, WorkersComeAndGoMeanwhile) {
  CopiesBench b;
  b.loseTheSecond();
  b.rescale(2, 1, 2);
  b.settle();
  EXPECT_EQ(b.epoch(), 3);
  EXPECT_EQ(b.info().copies_size(), 4);
}

TEST(CoordinatorCopies, ACoordinatorThatStartsAgainGoesOnWithThem) {
  CopiesBench former;
  former.loseTheSecond();
  former.reach(17);
  const v1::EpochInfo before = former.info();
  for (const bool complete : {false, true}) {
    Bench b(2, 2, [](CoordinatorConfig& config) {
      withParts(config);
      config.self = incarnation(1, 2);
    });
    b.reports = former.reports;
    for (auto& [key, report] : b.reports) *report.mutable_begun() = before;
    if (complete) b.ps(1).mutable_shard()->set_copied_epoch(before.epoch());
    for (auto& [key, report] : b.reports) report.set_seen_view(0);
    b.settle();
    ASSERT_EQ(b.c.phase(), v1::PHASE_ACTIVE) << b.c.waitingFor(b.now);
    EXPECT_EQ(b.last_view.lost_steps(), 0);
    EXPECT_EQ(b.last_view.epoch().first_step(), 17);
    if (complete) {
      EXPECT_THAT(listed(b.last_view.epoch().chunk_ps()), ElementsAre(0, 1, 0, 0, 1, 1));
    } else {
      EXPECT_THAT(listed(b.last_view.epoch().chunk_ps()), ElementsAre(0, 1, 0, 0, 0, 0));
      EXPECT_EQ(b.last_view.epoch().copies_size(), 4);
    }
  }
}

}  // namespace
}  // namespace trainyard::runtime
