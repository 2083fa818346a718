// Which chunks move when the number of servers changes: few, and no server holds much more than its
// share afterwards.
#include "runtime/placement/moves.h"

#include <algorithm>
#include <numeric>

#include "base/core/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/catalog/catalog.h"

namespace trainyard::runtime {
namespace {

using testing::Each;

std::set<int> upTo(int n) {
  std::set<int> servers;
  for (int i = 0; i < n; ++i) servers.insert(i);
  return servers;
}

std::vector<ChunkLoad> evenChunks(int count, int servers) {
  std::vector<ChunkLoad> chunks;
  for (int i = 0; i < count; ++i) chunks.push_back({1000, i % servers});
  return chunks;
}

std::map<int, std::int64_t> loadsOf(const std::vector<ChunkLoad>& chunks, const ChunkMap& map) {
  std::map<int, std::int64_t> loads;
  for (const int server : map.servers) loads[server] = 0;
  for (std::size_t id = 0; id < chunks.size(); ++id) loads[map.ps[id]] += chunks[id].bytes;
  return loads;
}

std::int64_t hottest(const std::vector<ChunkLoad>& chunks, const ChunkMap& map) {
  std::int64_t most = 0;
  for (const auto& [server, load] : loadsOf(chunks, map)) most = std::max(most, load);
  return most;
}

int movesBetween(const ChunkMap& a, const ChunkMap& b) {
  int moves = 0;
  for (std::size_t id = 0; id < a.ps.size(); ++id) moves += a.ps[id] != b.ps[id];
  return moves;
}

TEST(Moves, TheSameServersKeepWhatTheyHave) {
  std::vector<ChunkLoad> uneven = {{1, 0}, {900, 1}, {800, 1}, {700, 1}};
  const ChunkMap before = initialMap(uneven, 2);
  EXPECT_EQ(moveChunks(uneven, before, upTo(2)), before);
}

TEST(Moves, GrowingMovesOneServersShareAndNoMore) {
  const auto chunks = evenChunks(48, 2);
  const ChunkMap before = initialMap(chunks, 2);
  const ChunkMap after = moveChunks(chunks, before, upTo(3));
  EXPECT_EQ(movesBetween(before, after), 16);
  for (std::size_t id = 0; id < chunks.size(); ++id) {
    if (after.ps[id] != before.ps[id]) {
      EXPECT_EQ(after.ps[id], 2) << "only towards the new one";
    }
  }
  EXPECT_EQ(hottest(chunks, after), 16000);
}

TEST(Moves, WhatLeavesAServerIsSpreadOverTheOrderOfIds) {
  const auto chunks = evenChunks(64, 1);
  const ChunkMap after = moveChunks(chunks, initialMap(chunks, 1), upTo(2));
  for (int quarter = 0; quarter < 4; ++quarter) {
    const auto begin = after.ps.begin() + quarter * 16;
    EXPECT_EQ(std::count(begin, begin + 16, 1), 8) << "quarter " << quarter;
  }
}

TEST(Moves, ShrinkingMovesOnlyWhatTheGoneHeld) {
  const auto chunks = evenChunks(48, 3);
  const ChunkMap before = initialMap(chunks, 3);
  const ChunkMap two = moveChunks(chunks, before, upTo(2));
  EXPECT_EQ(movesBetween(before, two), 16);
  EXPECT_EQ(hottest(chunks, two), 24000);
  const ChunkMap one = moveChunks(chunks, two, upTo(1));
  EXPECT_THAT(one.ps, Each(0));
  EXPECT_EQ(movesBetween(two, one), 24);
}

TEST(Moves, ServersMayHaveAnyNumbers) {
  const auto chunks = evenChunks(12, 3);
  const ChunkMap after = moveChunks(chunks, initialMap(chunks, 3), {0, 2, 7});
  EXPECT_EQ(std::count(after.ps.begin(), after.ps.end(), 1), 0);
  EXPECT_EQ(std::count(after.ps.begin(), after.ps.end(), 7), 4);
}

TEST(Moves, PinnedChunksStayWhileTheirServerDoes) {
  auto chunks = evenChunks(12, 2);
  for (ChunkLoad& chunk : chunks) chunk.pinned = chunk.ps == 1;
  const ChunkMap before = initialMap(chunks, 2);
  const ChunkMap grown = moveChunks(chunks, before, upTo(3));
  for (std::size_t id = 0; id < chunks.size(); ++id) {
    if (chunks[id].pinned) {
      EXPECT_EQ(grown.ps[id], 1);
    }
  }
  EXPECT_THAT(moveChunks(chunks, before, upTo(1)).ps, Each(0));
}

TEST(Moves, MoreServersThanChunksLeaveSomeEmpty) {
  const auto chunks = evenChunks(3, 1);
  const ChunkMap after = moveChunks(chunks, initialMap(chunks, 1), upTo(5));
  EXPECT_EQ(hottest(chunks, after), 1000);
  EXPECT_EQ(loadsOf(chunks, after).size(), 5u);
}

// Chunks of all sizes, servers that come and go again and again: after each change nobody holds
// more than an even share plus the largest chunk, and the answer is always the same.
TEST(Moves, NoServerHoldsMoreThanItsShareAndAChunk) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Rng rng(seed);
    std::vector<ChunkLoad> chunks;
    std::int64_t total = 0;
    std::int64_t largest = 0;
    const auto count = 1 + rng.below(120);
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto bytes = static_cast<std::int64_t>(64 + rng.below(rng.below(3) == 0 ? 2000 : 200));
      chunks.push_back({bytes, static_cast<int>(rng.below(2))});
      total += bytes;
      largest = std::max(largest, bytes);
    }
    ChunkMap map = initialMap(chunks, 2);
    for (int change = 0; change < 6; ++change) {
      const auto n = 1 + static_cast<int>(rng.below(9));
      const ChunkMap before = map;
      map = moveChunks(chunks, map, upTo(n));
      EXPECT_EQ(map, moveChunks(chunks, before, upTo(n)));
      if (before.servers == map.servers) {
        EXPECT_EQ(before, map);
        continue;
      }
      EXPECT_LE(hottest(chunks, map), total / n + largest) << "seed " << seed;
      for (const int ps : map.ps) EXPECT_LT(ps, n);
    }
  }
}

// What a real model's grid makes of it: the bound of the design, and as few bytes as a new server
// needs.
TEST(Moves, ARealModelStaysBalanced) {
  v1::ModelSpec model;
  model.set_name("mnist_cnn");
  const auto variables = catalogVariables(model, {28, 28, 1}, 10);
  ASSERT_TRUE(variables.ok()) << variables.status();
  const auto placed = place({}, *variables, 2, 4);
  ASSERT_TRUE(placed.ok()) << placed.status();
  const auto chunks = chunkLoads(*placed);
  std::int64_t total = 0, largest = 0;
  for (const ChunkLoad& chunk : chunks) {
    total += chunk.bytes;
    largest = std::max(largest, chunk.bytes);
  }
  ChunkMap map = initialMap(chunks, 2);
  for (const int n : {3, 4, 2, 1, 3}) {
    const ChunkMap before = map;
    map = moveChunks(chunks, map, upTo(n));
    EXPECT_LE(double(hottest(chunks, map)), double(total) / n + double(largest)) << n;
    std::int64_t moved = 0;
    for (std::size_t id = 0; id < chunks.size(); ++id)
      moved += before.ps[id] == map.ps[id] ? 0 : chunks[id].bytes;
    const auto was = double(before.servers.size());
    const double least = n > was ? (n - was) / n : (was - n) / was;
    EXPECT_LE(double(moved), double(total) * least + double(n) * double(largest)) << n;
    const Placement there = withChunksAt(*placed, map.ps);
    EXPECT_EQ(there.globalStepPs(), 0);
    EXPECT_EQ(
        std::accumulate(there.bytes_per_ps.begin(), there.bytes_per_ps.end(), std::int64_t{0}),
        total + 4);
    for (int ps = 0; ps < n; ++ps)
      EXPECT_EQ(there.chunksOf(ps).size(),
                static_cast<std::size_t>(std::count(map.ps.begin(), map.ps.end(), ps)));
  }
}

TEST(Moves, ARulesServerIsPinned) {
  v1::ModelSpec model;
  model.set_name("mnist_cnn");
  const auto variables = catalogVariables(model, {28, 28, 1}, 10);
  ASSERT_TRUE(variables.ok());
  v1::PlacementSpec spec;
  v1::PlacementRule* rule = spec.add_rules();
  rule->set_match("fc2*");
  rule->set_ps(1);
  const auto placed = place(spec, *variables, 2);
  ASSERT_TRUE(placed.ok()) << placed.status();
  int pinned = 0;
  for (const Chunk& chunk : placed->chunks) {
    bool ruled = false;
    for (const Segment& segment : chunk.segments)
      ruled = ruled || placed->variables[segment.variable].name.starts_with("fc2");
    EXPECT_EQ(chunk.pinned, ruled) << chunk.id;
    pinned += chunk.pinned;
  }
  EXPECT_GT(pinned, 0);
}

}  // namespace
}  // namespace trainyard::runtime
