#include "runtime/data/number_set.h"

#include <set>

#include "base/core/rng.h"
#include "gtest/gtest.h"

namespace trainyard::runtime {
namespace {

constexpr std::int64_t kBound = 40;

// Ranges in order, with gaps between them, that have exactly these members.
void expectMembers(const NumberSet& set, const std::set<std::int64_t>& members) {
  std::set<std::int64_t> found;
  std::int64_t before = -1;
  for (const auto& [first, end] : set.ranges()) {
    EXPECT_GT(first, before);
    EXPECT_GT(end, first);
    before = end;
    for (std::int64_t i = first; i < end; ++i) found.insert(i);
  }
  EXPECT_EQ(found, members);
  for (std::int64_t i = 0; i < kBound + 5; ++i) EXPECT_EQ(set.contains(i), members.contains(i));
  EXPECT_EQ(set.end(), members.empty() ? 0 : *members.rbegin() + 1);
}

TEST(NumberSet, IsASet) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Rng random(seed);
    NumberSet set;
    std::set<std::int64_t> members;
    for (int i = 0; i < 40; ++i) {
      const auto first = static_cast<std::int64_t>(random.below(kBound));
      const std::int64_t end = first + static_cast<std::int64_t>(random.below(6));
      const bool add = random.below(3) != 0;
      if (add) set.add(first, end);
      if (!add) set.remove(first, end);
      for (std::int64_t n = first; n < end; ++n) {
        if (add) members.insert(n);
        if (!add) members.erase(n);
      }
    }
    SCOPED_TRACE(seed);
    expectMembers(set, members);
    NumberSet::Ranges written;
    set.write(written);
    EXPECT_EQ(NumberSet(written), set);
    NumberSet other;
    other.add(3, 30);
    NumberSet both = set;
    both.add(other);
    both.remove(set);
    for (const std::int64_t member : members) EXPECT_FALSE(both.contains(member));
  }
}

TEST(NumberSet, TakesMemoryForItsGapsOnly) {
  NumberSet set;
  for (std::int64_t i = 0; i < 1000; ++i) set.add(i);
  EXPECT_EQ(set.ranges().size(), 1u);
  set.add(5, 5);
  set.add(9, 2);
  EXPECT_EQ(set.ranges().size(), 1u);
  set.remove(500, 501);
  EXPECT_EQ(set.ranges().size(), 2u);
}

}  // namespace
}  // namespace trainyard::runtime
