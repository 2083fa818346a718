#include "runtime/coordinator/chunk_holders.h"

#include "tests/runtime/coordinator/parts_bench.h"

namespace trainyard::runtime {
namespace {

// Four chunks on two servers, and replicas of each at the other.
struct HoldersBench : PartsBench {
  HoldersBench()
      : PartsBench(2, 1, [](CoordinatorConfig& c) {
          c.chunks = {{8, 0}, {8, 1}, {8, 0}, {8, 1}};
          c.grid_ps = 2;
        }) {
    v1::EpochInfo epoch = all(1);
    epoch.set_replicated(true);
    EXPECT_TRUE(holders.adopt(epoch));
    hold(0, 5);
    hold(1, 5);
  }
  void hold(std::uint32_t server, std::int64_t version) { Bench::setShard(ps(server), version); }
  void keep(std::uint32_t server, std::uint32_t chunk, std::int64_t version) {
    v1::ChunkReplica* replica = shard(server).add_replicas();
    replica->set_chunk(chunk);
    replica->set_version(version);
  }
  // Its process is another one, which holds nothing.
  void lose(std::uint32_t server) {
    *ps(server).mutable_incarnation() = incarnation(1, 2);
    Bench::clear(ps(server));
  }
  Held held() {
    say();
    return holders.findHeld(membership, {keyOfServer(0), keyOfServer(1)});
  }
  ChunkHolders holders{config};
};

TEST(ChunkHolders, ReplicasOfAllItsChunksStandInForAServer) {
  HoldersBench b;
  b.lose(0);
  b.keep(1, 0, 6);
  EXPECT_TRUE(b.held().lost) << "chunk 2 is nowhere";
  b.keep(1, 2, 6);
  EXPECT_FALSE(b.held().lost);
}

// Its own chunks' versions are told elsewhere; a replica that is left over from another map says
// nothing about this one.
TEST(ChunkHolders, ReplicasOfOtherServersChunksDoNotCount) {
  HoldersBench b;
  b.lose(0);
  b.keep(1, 0, 6);
  b.keep(1, 1, 2);
  b.keep(1, 2, 5);
  b.keep(1, 3, 9);
  const Held held = b.held();
  EXPECT_FALSE(held.lost);
  EXPECT_EQ(held.lowest, 5);
  EXPECT_EQ(held.highest, 6);
}

// It has fetched some chunks for an epoch that came to nothing.
TEST(ChunkHolders, AProcessThatWasStartedSinceHoldsNothing) {
  HoldersBench b;
  *b.ps(0).mutable_incarnation() = incarnation(1, 2);
  EXPECT_TRUE(b.held().lost);
}

// A server that has rows of tables and no chunk, as those of small models have more servers than
// chunks.
TEST(ChunkHolders, AServerWithRowsAloneHoldsSomething) {
  for (const bool tables : {false, true}) {
    PartsBench b(2, 1, [&](CoordinatorConfig& c) {
      c.chunks = {{8, 0}};
      if (tables) c.chunks.push_back({.bytes = 0, .ps = 1, .rows = true});
      c.grid_ps = 2;
    });
    ChunkHolders holders{b.config};
    EXPECT_TRUE(holders.adopt(b.all(1)));
    EXPECT_EQ(holders.holds(1), tables);
    Bench::setShard(b.ps(0), 5);
    Bench::setShard(b.ps(1), 5);
    const std::set<MemberKey> both = {keyOfServer(0), keyOfServer(1)};
    b.say();
    EXPECT_FALSE(holders.findHeld(b.membership, both).lost);
    *b.ps(1).mutable_incarnation() = incarnation(1, 2);
    Bench::clear(b.ps(1));
    b.say();
    EXPECT_EQ(holders.findHeld(b.membership, both).lost, tables);
  }
}

TEST(ChunkHolders, AMapOfOtherChunksIsNotTaken) {
  HoldersBench b;
  v1::EpochInfo other = b.all(2);
  other.add_chunk_ps(1);
  EXPECT_FALSE(b.holders.adopt(other));
  EXPECT_TRUE(b.holders.holds(0)) << "what was known stays";
}

TEST(ChunkHolders, WhoKeepsReplicasAloneHoldsSomethingToo) {
  HoldersBench b;
  v1::EpochInfo epoch = b.all(2);
  for (int chunk = 0; chunk < 4; ++chunk) epoch.add_chunk_ps(0);
  ASSERT_TRUE(b.holders.adopt(epoch));
  EXPECT_FALSE(b.holders.holds(1));
  epoch.set_replicated(true);
  ASSERT_TRUE(b.holders.adopt(epoch));
  EXPECT_TRUE(b.holders.holds(1));
}

// A file written by hand knows of no lives.
TEST(ChunkHolders, OneOfAMembershipByHandIsPlaced) {
  HoldersBench b;
  b.ps(0).mutable_incarnation()->set_created(3);
  b.say();
  EXPECT_TRUE(b.holders.allPlaced(b.membership, {keyOfServer(0), keyOfServer(1)}));
  v1::Membership document = members(2, 1, 2);
  for (v1::MemberTask& task : *document.mutable_tasks()) task.set_created(2);
  b.membership.setDocument(document, true, b.now);
  EXPECT_FALSE(b.holders.allPlaced(b.membership, {keyOfServer(0), keyOfServer(1)}));
  EXPECT_TRUE(b.holders.allPlaced(b.membership, {keyOfServer(1)}));
}

}  // namespace
}  // namespace trainyard::runtime
