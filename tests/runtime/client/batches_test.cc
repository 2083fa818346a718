#include <gmock/gmock.h>

#include "runtime/client/operations.h"

namespace trainyard::runtime::client {
namespace {

std::vector<std::pair<std::size_t, std::size_t>> batches(const std::vector<NamedArray>& arrays) {
  std::vector<std::pair<std::size_t, std::size_t>> cut;
  for (const Batch& batch : batchesOf(arrays)) cut.emplace_back(batch.begin, batch.end);
  return cut;
}

NamedArray of(std::int64_t elements, ElementType type = ElementType::kFloat32) {
  return {{nullptr, elements, type}, ""};
}

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(Batches, SmallNeighboursOfOneTypeTravelTogether) {
  EXPECT_THAT(batches({of(10), of(20), of(30)}), ElementsAre(Pair(0, 3)));
  EXPECT_THAT(batches({of(10), of(20, ElementType::kInt64), of(30)}),
              ElementsAre(Pair(0, 1), Pair(1, 2), Pair(2, 3)));
}

TEST(Batches, LargeOnesTravelAlone) {
  EXPECT_THAT(batches({of(10), of(1 << 20), of(30), of(40)}),
              ElementsAre(Pair(0, 1), Pair(1, 2), Pair(2, 4)));
}

TEST(Batches, OfManySmallOnesAreSeveral) {
  // 256 KiB each: one batch is full after 4 MiB.
  const std::vector<NamedArray> many(40, of(1 << 16));
  const auto cut = batches(many);
  EXPECT_GT(cut.size(), 1u);
  EXPECT_EQ(cut.back().second, many.size());
  for (std::size_t i = 1; i < cut.size(); ++i) EXPECT_EQ(cut[i].first, cut[i - 1].second);
}

TEST(Batches, OfNothingAreNone) {
  EXPECT_THAT(batches({}), ElementsAre());
}

}  // namespace
}  // namespace trainyard::runtime::client
