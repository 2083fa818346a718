#include "runtime/rows/row_set.h"

#include <algorithm>
#include <map>

#include "base/core/rng.h"
#include "gtest/gtest.h"

namespace trainyard::runtime::rows {
namespace {

constexpr std::size_t kRowLength = 3;

TEST(RowSet, HoldsEachIdOnceInTheOrderOfPartitions) {
  const std::uint64_t salt = saltOf("user");
  const RowOrder order(salt);
  RowSet set(salt);
  Rng random(1);
  for (const std::size_t size : {0U, 1U, 7U, 5000U, 300U}) {
    std::vector<std::uint64_t> occurrences(size);
    std::map<std::uint64_t, std::uint32_t> wanted;
    for (std::uint64_t& id : occurrences) ++wanted[id = random.below(700) * 0x9E3779B97F4A7C15];
    set.assign(occurrences);
    ASSERT_EQ(set.ids().size(), wanted.size());
    EXPECT_TRUE(std::ranges::is_sorted(set.ids(), std::less<>(),
                                       [&](std::uint64_t id) { return order.key(id); }));
    for (std::size_t k = 0; k < set.ids().size(); ++k)
      EXPECT_EQ(set.counts()[k], wanted.at(set.ids()[k]));
    ASSERT_EQ(set.places().size(), size);
    for (std::size_t i = 0; i < size; ++i) EXPECT_EQ(set.ids()[set.places()[i]], occurrences[i]);
  }
}

TEST(RowSet, WhatWasCountedBeforeCountsAsOften) {
  RowSet set(saltOf("user"));
  const std::vector<std::uint64_t> ids{5, 9, 5};
  const std::vector<std::uint32_t> counts{3, 2, 4};
  set.assign(ids, counts);
  ASSERT_EQ(set.ids().size(), 2u);
  EXPECT_EQ(set.counts()[set.places()[0]], 7u);
  EXPECT_EQ(set.counts()[set.places()[1]], 2u);
}

TEST(RowSet, PartitionsLieTogether) {
  const std::uint64_t salt = saltOf("ads");
  RowSet set(salt);
  std::vector<std::uint64_t> occurrences;
  for (std::uint64_t id = 0; id < 3000; ++id) occurrences.push_back(id * id);
  set.assign(occurrences);
  std::size_t next = 0;
  for (const PartitionRange range :
       {PartitionRange{0, 10}, PartitionRange{10, 10}, PartitionRange{10, kPartitions}}) {
    const auto [first, last] = set.within(range);
    EXPECT_EQ(first, next);
    for (std::size_t k = first; k < last; ++k)
      EXPECT_TRUE(range.has(partitionOf(hashOf(set.ids()[k], salt))));
    next = last;
  }
  EXPECT_EQ(next, set.ids().size());
}

TEST(RowSet, GradientsOfAnIdAddUpAndItsRowGoesToAllItsOccurrences) {
  RowSet set(saltOf("user"));
  const std::vector<std::uint64_t> occurrences{5, 9, 5, 5};
  set.assign(occurrences);
  std::vector<float> by_occurrence(occurrences.size() * kRowLength);
  for (std::size_t i = 0; i < by_occurrence.size(); ++i) by_occurrence[i] = static_cast<float>(i);
  std::vector<float> by_id(2 * kRowLength, 77);
  set.sum(by_occurrence, kRowLength, by_id);
  const std::size_t five = set.places()[0];
  const std::size_t nine = set.places()[1];
  EXPECT_EQ(by_id[five * kRowLength + 1], 1 + 7 + 10);
  EXPECT_EQ(by_id[nine * kRowLength + 2], 5);
  set.spread(by_id, kRowLength, by_occurrence);
  EXPECT_EQ(by_occurrence[3 * kRowLength + 1], 18);
  EXPECT_EQ(by_occurrence[1 * kRowLength + 2], 5);
}

}  // namespace
}  // namespace trainyard::runtime::rows
