// The index against a plain map, with hashes that collide in all ways.
#include "runtime/rows/row_index.h"

#include <map>
#include <set>

#include "base/core/rng.h"
#include "gtest/gtest.h"
#include "runtime/rows/row_slab.h"

namespace trainyard::runtime::rows {
namespace {

std::multiset<std::uint32_t> found(const RowIndex& index, std::uint64_t hash) {
  std::multiset<std::uint32_t> rows;
  RowIndex::Probe probe = index.find(hash);
  for (std::uint32_t row = probe.next(); row != RowIndex::kNone; row = probe.next())
    rows.insert(row);
  return rows;
}

TEST(RowIndex, FindsAllRowsThatAHashMayMean) {
  for (const std::uint64_t mask :
       {~std::uint64_t{0}, std::uint64_t{0x3F}, std::uint64_t{0xFF000000}}) {
    Rng random(mask);
    RowIndex index;
    std::map<std::uint32_t, std::multiset<std::uint32_t>> wanted;  // by the hash's lower half
    for (std::uint32_t row = 0; row < 2000; ++row) {
      const std::uint64_t hash = random.next() & mask;
      index.insert(hash, row);
      wanted[static_cast<std::uint32_t>(hash)].insert(row);
    }
    EXPECT_EQ(index.size(), 2000U);
    for (const auto& [hash, rows] : wanted) EXPECT_EQ(found(index, hash), rows);
    EXPECT_TRUE(found(index, 0x1234567).empty());
  }
}

// Of cells that are crowded, and of whole runs that go around the end.
TEST(RowIndex, WhatWasErasedIsNotFoundAndAllElseIs) {
  for (const std::uint64_t mask :
       {~std::uint64_t{0}, std::uint64_t{0x3F}, std::uint64_t{0xFFFFFFF0}}) {
    Rng random(mask + 1);
    RowIndex index;
    std::map<std::uint32_t, std::uint64_t> rows;  // its hash by row
    std::uint32_t next = 0;
    for (int i = 0; i < 6000; ++i) {
      if (rows.empty() || random.below(5) < 3) {
        rows[next] = random.next() & mask;
        index.insert(rows[next], next);
        ++next;
        continue;
      }
      auto one = rows.lower_bound(static_cast<std::uint32_t>(random.below(next)));
      if (one == rows.end()) one = rows.begin();
      if (random.below(4) == 0) {
        index.renumber(one->second, one->first, next);
        rows[next++] = one->second;
      } else {
        index.erase(one->second, one->first);
      }
      rows.erase(one);
    }
    EXPECT_EQ(index.size(), rows.size());
    std::map<std::uint32_t, std::multiset<std::uint32_t>> wanted;
    for (const auto& [row, hash] : rows) wanted[static_cast<std::uint32_t>(hash)].insert(row);
    for (const auto& [hash, of] : wanted) ASSERT_EQ(found(index, hash), of);
  }
}

TEST(RowIndex, RoomThatWasMadeIsNotMadeAgain) {
  Rng random(3);
  RowIndex index;
  std::vector<std::uint64_t> hashes;
  for (std::uint32_t row = 0; row < 1000; ++row) {
    if (row == 100) index.reserve(1000);  // what is there stays
    hashes.push_back(random.next());
    index.insert(hashes.back(), row);
  }
  const std::size_t bytes = index.bytes();
  for (std::uint32_t row = 0; row < 1000; ++row)
    EXPECT_TRUE(found(index, hashes[row]).contains(row));
  index.reserve(900);
  EXPECT_EQ(index.bytes(), bytes);
  RowIndex other;
  other.reserve(1000);
  EXPECT_EQ(other.bytes(), bytes);
}

TEST(RowIndex, AnEmptyOneIsSmallAndFindsNothing) {
  const RowIndex index;
  EXPECT_TRUE(found(index, 0).empty());
  EXPECT_LE(index.bytes(), 32U);
}

TEST(RowSlab, GivesBackTheMemoryOfWhatWasRemoved) {
  RowSlab slab(5);
  for (int i = 0; i < 1000; ++i) slab.add();
  const std::size_t full = slab.bytes();
  for (int i = 0; i < 990; ++i) slab.removeLast();
  EXPECT_EQ(slab.size(), 10U);
  EXPECT_LT(slab.bytes(), full / 3);
  for (int i = 0; i < 10; ++i) slab.removeLast();
  EXPECT_EQ(slab.add(), 0U);
  slab.header(0).id = 8;
  EXPECT_EQ(slab.header(0).id, 8U);
}

TEST(RowSlab, RowsKeepTheirPlaceAndTheirValues) {
  RowSlab slab(5);
  std::vector<const float*> places;
  for (std::uint32_t row = 0; row < 300; ++row) {
    ASSERT_EQ(slab.add(), row);
    slab.header(row).id = 1000 + row;
    for (float& value : slab.floats(row)) value = static_cast<float>(row);
    places.push_back(slab.floats(row).data());
  }
  std::set<const float*> different(places.begin(), places.end());
  EXPECT_EQ(different.size(), 300U);
  for (std::uint32_t row = 0; row < 300; ++row) {
    EXPECT_EQ(slab.header(row).id, 1000 + row);
    EXPECT_EQ(slab.floats(row).data(), places[row]);
    EXPECT_EQ(slab.floats(row)[4], static_cast<float>(row));
  }
}

TEST(RowSlab, FewRowsTakeLittleAndManyHaveLittleInReserve) {
  RowSlab slab(12);  // 64 bytes a row
  slab.add();
  EXPECT_EQ(slab.bytes(), 128U + sizeof(void*));
  while (slab.size() < 10'000) {
    slab.add();
    EXPECT_LE(slab.bytes(), 2 * (64 + sizeof(void*)) * slab.size() + 128);
    EXPECT_LE(slab.bytes(), (slab.size() + 32) * 64 + slab.size());
  }
}

}  // namespace
}  // namespace trainyard::runtime::rows
