// Parameter servers that join and leave while the job computes.
#include <set>

#include "tests/runtime/coordinator/bench.h"

namespace trainyard::runtime {
namespace {

using std::chrono::seconds;

constexpr int kGrid = 2;  // servers at the job's start
constexpr int kChunks = 12;

// A job of two servers and two workers with ten steps behind it.
struct RunningServers : Bench {
  explicit RunningServers(const std::function<void(CoordinatorConfig&)>& change = {})
      : Bench(kGrid, 2, [&](CoordinatorConfig& config) {
          for (int i = 0; i < kChunks; ++i) config.chunks.push_back({1000, i % kGrid, false});
          config.grid_ps = kGrid;
          if (change) change(config);
        }) {
    activate();
    reach(10);
  }
  void scale(int ps, std::int64_t revision) { rescale(ps, 2, revision); }
  void arrive(std::uint32_t index, std::int64_t revision) {
    Bench fresh(static_cast<int>(index) + 1, 1);
    reports[{v1::ROLE_PS, index}] = fresh.ps(index);
    reports[{v1::ROLE_PS, index}].set_revision(revision);
  }
  void vanish(std::uint32_t index) { reports.erase({v1::ROLE_PS, index}); }
  // Servers that are to hold chunks in the newest epoch.
  std::set<int> servers() const {
    std::set<int> found(last_view.epoch().chunk_ps().begin(), last_view.epoch().chunk_ps().end());
    if (found.empty()) found = {0, 1};
    return found;
  }
  // A server has what the epoch needs.
  void prepare(std::uint32_t index) {
    ps(index).set_prepared_epoch(epoch());
    setShard(ps(index), last_view.epoch().first_step());
  }
};

TEST(CoordinatorServers, NobodyWaitsForOneThatIsToJoin) {
  RunningServers b;
  b.scale(3, 2);
  b.expectNobodyIsWaitedFor(14);
}

TEST(CoordinatorServers, AJoinerTakesItsShareAtAStepBoundary) {
  RunningServers b;
  b.prepares = false;
  b.scale(3, 2);
  b.reach(13);
  b.arrive(2, 2);
  b.settle();
  ASSERT_EQ(b.c.phase(), v1::PHASE_PREPARING);
  const v1::EpochInfo epoch = b.last_view.epoch();
  EXPECT_EQ(epoch.epoch(), 2);
  EXPECT_EQ(epoch.first_step(), 13);
  EXPECT_FALSE(epoch.fresh());
  EXPECT_EQ(epoch.restore_manifest(), "");
  EXPECT_EQ(epoch.members_size(), 5);
  ASSERT_EQ(epoch.chunk_ps_size(), kChunks);
  ASSERT_EQ(epoch.former_ps_size(), kChunks);
  int moved = 0;
  for (int i = 0; i < kChunks; ++i) {
    EXPECT_EQ(epoch.former_ps(i), i % kGrid);
    moved += epoch.chunk_ps(i) != epoch.former_ps(i);
  }
  EXPECT_EQ(moved, 4);
  EXPECT_TRUE(epoch.replicated());
  ASSERT_EQ(epoch.sources_size(), 3) << "who gives chunks, and who keeps replicas";
  for (int i = 0; i < 3; ++i) EXPECT_EQ(epoch.sources(i).ps(), static_cast<std::uint32_t>(i));
  b.prepare(0);
  b.prepare(1);
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_PREPARING) << "ps-2 has not got its chunks";
  b.prepare(2);
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
  EXPECT_EQ(b.last_view.lost_steps(), 0);
  EXPECT_EQ(b.logged("epoch 1 ends: at step 13 the parameter servers change from 2 to 3"), 1);
  b.tick(seconds(1));
  b.reach(14);
  EXPECT_EQ(b.logged("epoch 2 has taken its first step 1.00 s after membership revision 2"), 1);
}

// Who leaves keeps what it holds, and stays, until the others have it.
TEST(CoordinatorServers, ALeaverGoesWhenItsChunksAreElsewhere) {
  RunningServers b;
  b.prepares = false;
  b.scale(1, 2);
  b.settle();
  ASSERT_EQ(b.c.phase(), v1::PHASE_PREPARING);
  EXPECT_EQ(b.last_view.epoch().members_size(), 3) << "ps-0 and two workers";
  EXPECT_EQ(b.servers(), (std::set<int>{0}));
  ASSERT_EQ(b.last_view.epoch().sources_size(), 2) << "who takes part, and who gives chunks";
  EXPECT_EQ(b.last_view.epoch().sources(0).ps(), 0u);
  EXPECT_EQ(b.last_view.epoch().sources(1).ps(), 1u);
  EXPECT_FALSE(b.ps(1).leaving());
  b.prepare(0);
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
  EXPECT_TRUE(b.ps(1).leaving());
  b.vanish(1);
  b.reach(20);
  for (int i = 0; i < 8; ++i) {
    b.tick(seconds(1));
    b.settle();
  }
  EXPECT_EQ(b.epoch(), 2) << "nobody misses it";
  EXPECT_EQ(b.last_view.lost_steps(), 0);
}

TEST(CoordinatorServers, ATakerThatDiesLeavesTheMapAsItWas) {
  RunningServers b;
  b.prepares = false;
  b.scale(3, 2);
  b.arrive(2, 2);
  b.settle();
  ASSERT_EQ(b.c.phase(), v1::PHASE_PREPARING);
  b.prepare(0);
  b.prepare(1);
  b.vanish(2);
  for (int i = 0; i < 6; ++i) {
    b.tick(seconds(1));
    b.settle();
  }
  ASSERT_EQ(b.c.phase(), v1::PHASE_PREPARING);
  EXPECT_EQ(b.epoch(), 3);
  EXPECT_EQ(b.servers(), (std::set<int>{0, 1}));
  EXPECT_EQ(b.last_view.epoch().former_ps_size(), 0) << "nothing moves";
  b.prepare(0);
  b.prepare(1);
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_ACTIVE) << b.c.waitingFor(b.now);
  EXPECT_EQ(b.last_view.lost_steps(), 0);
  EXPECT_EQ(b.last_view.epoch().first_step(), 10);
  // It comes back with nothing in its hands, and joins then.
  b.arrive(2, 2);
  b.restart(b.ps(2));
  b.reach(12);
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_PREPARING);
  EXPECT_EQ(b.servers(), (std::set<int>{0, 1, 2}));
  EXPECT_EQ(b.last_view.lost_steps(), 0);
}

// Servers that keep replicas say so once the epoch has ended: of server `of`, at these versions.
void keepReplicas(Bench& b, std::uint32_t keeper, int of, std::int64_t version) {
  b.ps(keeper).mutable_shard()->clear_replicas();
  for (int i = 0; i < kChunks; ++i) {
    if (i % kGrid != of) continue;
    v1::ChunkReplica* replica = b.ps(keeper).mutable_shard()->add_replicas();
    replica->set_chunk(static_cast<std::uint32_t>(i));
    replica->set_version(version);
  }
}

TEST(CoordinatorServers, ReplicasStandInForAServerThatStartsAgain) {
  RunningServers b;
  b.prepares = false;
  keepReplicas(b, 1, 0, 10);
  keepReplicas(b, 0, 1, 10);
  b.restart(b.ps(1));
  b.settle();
  ASSERT_EQ(b.c.phase(), v1::PHASE_PREPARING);
  const v1::EpochInfo epoch = b.last_view.epoch();
  EXPECT_EQ(epoch.first_step(), 10);
  EXPECT_FALSE(epoch.fresh());
  EXPECT_EQ(epoch.restore_manifest(), "");
  EXPECT_TRUE(epoch.replicated());
  ASSERT_EQ(epoch.chunk_ps_size(), kChunks);
  ASSERT_EQ(epoch.former_ps_size(), kChunks);
  for (int i = 0; i < kChunks; ++i) {
    EXPECT_EQ(epoch.chunk_ps(i), i % kGrid) << "each stays where it was";
    EXPECT_EQ(epoch.former_ps(i), 0) << "who holds it, or its replica";
  }
  EXPECT_EQ(b.last_view.lost_steps(), 0);
  b.prepare(0);
  b.prepare(1);
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_ACTIVE) << b.c.waitingFor(b.now);
}

// What it has fetched for an epoch that came to nothing is not all that its place in the map says:
// who else is given chunks by that epoch may have taken some of them.
TEST(CoordinatorServers, WhoStartsAgainHoldsNothingBeforeAnEpochBegins) {
  RunningServers b;
  b.prepares = false;
  keepReplicas(b, 0, 1, 10);
  b.restart(b.ps(1));
  b.settle();
  ASSERT_EQ(b.c.phase(), v1::PHASE_PREPARING);
  b.prepare(1);
  b.restart(b.worker(1));
  b.settle();
  ASSERT_EQ(b.c.phase(), v1::PHASE_PREPARING);
  EXPECT_EQ(b.epoch(), 3);
  ASSERT_EQ(b.last_view.epoch().former_ps_size(), kChunks);
  for (const int from : b.last_view.epoch().former_ps()) EXPECT_EQ(from, 0);
  EXPECT_EQ(b.last_view.lost_steps(), 0);
}

// A chunk's replica may be a step behind what its server had: the step is taken again.
TEST(CoordinatorServers, TheEpochStartsAtTheSmallestVersionOfWhatIsLeft) {
  RunningServers b;
  b.prepares = false;
  keepReplicas(b, 0, 1, 10);
  Bench::setShard(b.ps(0), 10, 11);
  b.restart(b.ps(1));
  b.settle();
  EXPECT_EQ(b.last_view.epoch().first_step(), 10);
  EXPECT_EQ(b.last_view.lost_steps(), 0);
}

TEST(CoordinatorServers, WithoutAllReplicasTheJobGoesBack) {
  for (const int missing : {0, 1, 2}) {
    RunningServers b;
    b.prepares = false;
    keepReplicas(b, 0, 1, 10);
    if (missing == 0) b.ps(0).mutable_shard()->mutable_replicas()->RemoveLast();
    // Far behind: it is of an earlier time.
    if (missing == 1) b.ps(0).mutable_shard()->mutable_replicas(2)->set_version(4);
    if (missing == 2) b.restart(b.ps(0));
    b.restart(b.ps(1));
    b.settle();
    EXPECT_TRUE(b.last_view.epoch().fresh()) << missing;
    EXPECT_EQ(b.last_view.lost_steps(), 10) << missing;
  }
}

TEST(CoordinatorServers, ALostServerThatIsNotWantedAnyMoreIsNotMissed) {
  RunningServers b;
  b.prepares = false;
  keepReplicas(b, 0, 1, 10);
  b.vanish(1);
  b.scale(1, 2);
  for (int i = 0; i < 12; ++i) {
    b.tick(seconds(1));
    b.settle();
  }
  ASSERT_EQ(b.c.phase(), v1::PHASE_PREPARING);
  const v1::EpochInfo& epoch = b.last_view.epoch();
  EXPECT_EQ(b.servers(), (std::set<int>{0}));
  EXPECT_FALSE(epoch.replicated()) << "there is no other";
  EXPECT_EQ(epoch.former_ps_size(), 0) << "ps-0 has all of it";
  EXPECT_EQ(b.last_view.lost_steps(), 0);
}

// A job may do without: then a server that dies takes all back.
TEST(CoordinatorServers, WithoutReplicasALostServerCostsTheStepsSinceTheCheckpoint) {
  Bench b(kGrid, 2, [&](CoordinatorConfig& config) {
    for (int i = 0; i < kChunks; ++i) config.chunks.push_back({1000, i % kGrid, false});
    config.grid_ps = kGrid;
    config.replicate = false;
  });
  b.activate();
  EXPECT_FALSE(b.last_view.epoch().replicated());
  b.reach(10);
  b.restart(b.ps(1));
  Bench::clear(b.ps(1));
  b.settle();
  EXPECT_TRUE(b.last_view.epoch().fresh());
  EXPECT_EQ(b.last_view.lost_steps(), 10);
}

TEST(CoordinatorServers, ACoordinatorThatStartsAgainIsToldWhereTheJobIs) {
  RunningServers former;
  former.reach(17);
  const v1::EpochInfo before = former.last_view.epoch();
  ASSERT_EQ(before.past_size(), 1);
  EXPECT_EQ(before.past(0).step_samples(), 20);

  Bench b(kGrid, 2, [&](CoordinatorConfig& config) {
    for (int i = 0; i < kChunks; ++i) config.chunks.push_back({1000, i % kGrid, false});
    config.grid_ps = kGrid;
    config.self = incarnation(1, 2);
  });
  b.prepares = false;
  b.ps(1) = former.ps(1);
  for (const std::uint32_t worker : {0u, 1u}) b.worker(worker) = former.worker(worker);
  *b.ps(1).mutable_begun() = *b.worker(0).mutable_begun() = before;
  keepReplicas(b, 1, 0, 17);
  b.restart(b.ps(0));
  b.settle();
  ASSERT_EQ(b.c.phase(), v1::PHASE_PREPARING) << b.c.waitingFor(b.now);
  const v1::EpochInfo& epoch = b.last_view.epoch();
  EXPECT_GT(epoch.epoch(), before.epoch());
  EXPECT_EQ(epoch.first_step(), 17);
  EXPECT_EQ(epoch.first_position(), 17 * 20);
  EXPECT_EQ(epoch.restore_manifest(), "");
  ASSERT_EQ(epoch.former_ps_size(), kChunks);
  EXPECT_EQ(epoch.former_ps(0), 1);
  ASSERT_EQ(epoch.past_size(), 1) << "it reads on as the one before";
  EXPECT_EQ(epoch.past(0).epoch(), before.epoch());
  EXPECT_EQ(b.last_view.lost_steps(), 0);
}

// With one server there is nothing to go on from.
TEST(CoordinatorServers, ACoordinatorThatStartsAgainAloneGoesBack) {
  RunningServers former;
  Bench b(1, 2, [&](CoordinatorConfig& config) {
    config.chunks.push_back({1000, 0, false});
    config.grid_ps = 1;
    config.self = incarnation(1, 2);
  });
  b.prepares = false;
  for (const std::uint32_t worker : {0u, 1u}) b.worker(worker) = former.worker(worker);
  b.worker(0).mutable_begun()->set_epoch(4);
  *b.worker(0).mutable_begun()->add_members()->mutable_id() = b.ps(0).id();
  b.settle();
  EXPECT_TRUE(b.last_view.epoch().fresh());
  EXPECT_EQ(b.last_view.lost_steps(), 10);
}

// Where servers are is told to others: of a life that the membership here does not know it is not
// known.
TEST(CoordinatorServers, ANewerLifeThanTheMembershipKnowsIsNotPlacedYet) {
  RunningServers b;
  v1::Membership known = members(2, 2, 2);
  for (v1::MemberTask& task : *known.mutable_tasks()) task.set_created(1);
  b.c.setMembership(known, b.now);
  keepReplicas(b, 0, 1, 10);
  b.restart(b.ps(1));
  *b.ps(1).mutable_incarnation() = incarnation(2, 1);
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_SEALING);
  known.set_revision(3);
  known.mutable_tasks(1)->set_created(2);
  b.c.setMembership(known, b.now);
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_ACTIVE) << b.c.waitingFor(b.now);
  EXPECT_EQ(b.last_view.lost_steps(), 0);
}

// Some chunks have taken a step, with its norm: the others take it with the same.
TEST(CoordinatorServers, AKnownNormIsToldWithTheEpoch) {
  RunningServers b;
  Bench::setShard(b.ps(0), 10, 11);
  b.ps(0).mutable_shard()->mutable_norm()->set_step(10);
  b.ps(0).mutable_shard()->mutable_norm()->set_norm(2.5);
  b.restart(b.worker(1));
  b.settle();
  ASSERT_EQ(b.c.phase(), v1::PHASE_ACTIVE) << b.c.waitingFor(b.now);
  EXPECT_EQ(b.last_view.gradient_norm().step(), 10);
  EXPECT_EQ(b.last_view.gradient_norm().norm(), 2.5);
}

TEST(CoordinatorServers, AGiverThatDiesTakesTheJobBackToItsCheckpoint) {
  RunningServers b;
  b.prepares = false;
  b.scale(1, 2);
  b.settle();
  ASSERT_EQ(b.c.phase(), v1::PHASE_PREPARING);
  b.restart(b.ps(1));
  b.settle();
  ASSERT_EQ(b.c.phase(), v1::PHASE_PREPARING);
  EXPECT_EQ(b.epoch(), 3);
  EXPECT_TRUE(b.last_view.epoch().fresh()) << "there is no checkpoint yet";
  EXPECT_EQ(b.last_view.lost_steps(), 10);
  EXPECT_EQ(b.servers(), (std::set<int>{0}));
  EXPECT_EQ(b.last_view.epoch().former_ps_size(), 0);
  b.prepare(0);
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_ACTIVE) << b.c.waitingFor(b.now);
  EXPECT_TRUE(b.ps(1).leaving());
}

// Silent, it may only be slow: it is waited for a while.
TEST(CoordinatorServers, ASilentLeaverIsGivenUpInTheEnd) {
  RunningServers b;
  b.prepares = false;
  b.scale(1, 2);
  b.settle();
  b.vanish(1);
  for (int i = 0; i < 7; ++i) {
    b.tick(seconds(1));
    b.settle();
  }
  EXPECT_EQ(b.c.phase(), v1::PHASE_SEALING);
  EXPECT_EQ(b.c.waitingFor(b.now), "ps-1");
  for (int i = 0; i < 5; ++i) {
    b.tick(seconds(1));
    b.settle();
  }
  EXPECT_EQ(b.c.phase(), v1::PHASE_PREPARING);
  EXPECT_TRUE(b.last_view.epoch().fresh());
}

TEST(CoordinatorServers, NobodyComesOrGoesWithinAStep) {
  RunningServers b;
  b.rests = false;
  b.scale(1, 2);
  b.settle();
  EXPECT_TRUE(b.last_view.hold());
  Bench::setShard(b.ps(0), 10, 11);
  Bench::setShard(b.ps(1), 11);
  b.restart(b.worker(1));
  b.settle();
  ASSERT_EQ(b.c.phase(), v1::PHASE_ACTIVE) << b.c.waitingFor(b.now);
  EXPECT_EQ(b.last_view.epoch().members_size(), 4) << "ps-1 still serves";
  EXPECT_EQ(b.servers(), (std::set<int>{0, 1}));
  b.rests = true;
  b.worker(0).mutable_worker()->set_idle(true);
  b.worker(1).mutable_worker()->set_idle(true);
  b.reach(11);
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
  EXPECT_EQ(b.servers(), (std::set<int>{0}));
  EXPECT_TRUE(b.ps(1).leaving());
  EXPECT_EQ(b.last_view.lost_steps(), 0);
}

// A death in the job's midst is as good a moment, when all chunks are at one version.
TEST(CoordinatorServers, AnUnplannedEpochTakesThoseWhoAreThere) {
  RunningServers b;
  b.rests = false;
  b.scale(3, 2);
  b.arrive(2, 2);
  b.settle();
  EXPECT_EQ(b.epoch(), 1);
  b.restart(b.worker(1));
  b.settle();
  EXPECT_EQ(b.epoch(), 2);
  EXPECT_EQ(b.servers(), (std::set<int>{0, 1, 2}));
  EXPECT_EQ(b.last_view.lost_steps(), 0);
}

// A checkpoint is of the epoch's servers; who is yet to join has none of it.
TEST(CoordinatorServers, ACheckpointNeedsNoFileOfAJoiner) {
  RunningServers b;
  b.write(0);
  b.commit();
  b.rests = false;
  b.scale(3, 2);
  b.arrive(2, 2);
  b.settle();
  ASSERT_EQ(b.epoch(), 1);
  b.reach(100);
  const std::size_t before = b.commits.size();
  const v1::MemberReport joiner = b.ps(2);
  b.vanish(2);
  b.write(100);
  b.reports[{v1::ROLE_PS, 2}] = joiner;
  b.settle();
  ASSERT_EQ(b.commits.size(), before + 1);
  EXPECT_EQ(b.commits.back().files.size(), 2u);
}

// It knows no map: all load the newest checkpoint by one that follows from the number of servers.
TEST(CoordinatorServers, ACoordinatorThatStartsAgainPlacesTheChunksAnew) {
  Manifest newest;
  newest.job_uid = "uid-1";
  newest.step = 20;
  newest.epoch = 2;
  std::vector<ChunkLoad> chunks;
  for (int i = 0; i < kChunks; ++i) chunks.push_back({1000, i % kGrid, false});
  Bench b(
      3, 2,
      [&](CoordinatorConfig& config) {
        config.chunks = chunks;
        config.grid_ps = kGrid;
      },
      newest);
  b.activate();
  const v1::EpochInfo& epoch = b.last_view.epoch();
  EXPECT_EQ(epoch.restore_manifest(), newest.fileName());
  const ChunkMap map = moveChunks(chunks, initialMap(chunks, kGrid), {0, 1, 2});
  EXPECT_EQ(std::vector<int>(epoch.chunk_ps().begin(), epoch.chunk_ps().end()), map.ps);
  EXPECT_EQ(epoch.former_ps_size(), 0);
}

// A joiner that has not reported when its wish is taken back was never there.
TEST(CoordinatorServers, AWishThatIsTakenBackChangesNothing) {
  RunningServers b;
  b.scale(3, 2);
  b.scale(2, 3);
  b.arrive(2, 2);
  b.settle();
  b.reach(14);
  EXPECT_EQ(b.epoch(), 1);
  EXPECT_TRUE(b.ps(2).leaving());
}

}  // namespace
}  // namespace trainyard::runtime
