#include "runtime/rows/row_sum.h"

#include <algorithm>
#include <limits>
#include <map>

#include "base/core/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard::runtime::rows {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kSumDim = 2;
const RowOrder kOrder(saltOf("user"));

RowGradients rowsOf(std::vector<std::uint64_t> ids, float value, std::uint32_t count = 1) {
  std::ranges::sort(ids, {}, [](std::uint64_t id) { return kOrder.key(id); });
  RowGradients rows;
  rows.counts.assign(ids.size(), count);
  rows.sums.assign(ids.size() * kSumDim, value);
  rows.ids = std::move(ids);
  return rows;
}

TEST(SumOverRanks, IsTheUnionInOrder) {
  const RowGradients a = rowsOf({1, 2, 3}, 1);
  const RowGradients b = rowsOf({3, 4}, 10, 2);
  const RowGradients nothing;
  const std::vector<const RowGradients*> ranks{&a, &nothing, &b};
  const RowGradients sum = sumOverRanks(ranks, kSumDim, kOrder);
  EXPECT_TRUE(checkGradients(sum, "user", kSumDim, kOrder, {}).ok());
  std::map<std::uint64_t, std::pair<float, std::uint32_t>> found;
  for (std::size_t k = 0; k < sum.ids.size(); ++k)
    found[sum.ids[k]] = {sum.sums[k * kSumDim + 1], sum.counts[k]};
  EXPECT_EQ(found, (std::map<std::uint64_t, std::pair<float, std::uint32_t>>{
                       {1, {1, 1}}, {2, {1, 1}}, {3, {11, 3}}, {4, {10, 2}}}));
}

TEST(SumOverRanks, AddsInTheOrderOfRanks) {
  // (1 + 2^24) - 2^24 is 0 in float32, 1 + (2^24 - 2^24) is not.
  const RowGradients a = rowsOf({7}, 1);
  const RowGradients b = rowsOf({7}, 16777216);
  const RowGradients c = rowsOf({7}, -16777216);
  const auto sumOf = [](std::vector<const RowGradients*> ranks) {
    return sumOverRanks(ranks, kSumDim, kOrder).sums[0];
  };
  EXPECT_EQ(sumOf({&a, &b, &c}), 0);
  EXPECT_EQ(sumOf({&b, &c, &a}), 1);
}

TEST(SumOverRanks, CountsEndAtTheirLargest) {
  const RowGradients a = rowsOf({7}, 1, std::numeric_limits<std::uint32_t>::max() - 1);
  const RowGradients b = rowsOf({7}, 1, 5);
  const std::vector<const RowGradients*> ranks{&a, &b};
  EXPECT_EQ(sumOverRanks(ranks, kSumDim, kOrder).counts[0],
            std::numeric_limits<std::uint32_t>::max());
}

TEST(CheckGradients, NamesTheTableAndWhatIsWrong) {
  const auto messageOf = [](const RowGradients& rows, PartitionRange range) {
    return std::string(checkGradients(rows, "user", kSumDim, kOrder, range).message());
  };
  RowGradients rows = rowsOf({1, 2, 3}, 1);
  EXPECT_EQ(messageOf(rows, {}), "");
  std::swap(rows.ids[0], rows.ids[1]);
  EXPECT_EQ(messageOf(rows, {}),
            "table user: id " + std::to_string(rows.ids[1]) + " is out of order");
  rows.ids[1] = rows.ids[0];
  EXPECT_THAT(messageOf(rows, {}), HasSubstr("is out of order"));
  const int partition = kOrder.partition(9);
  EXPECT_EQ(messageOf(rowsOf({9}, 1), {partition + 1, kPartitions}),
            "table user: id 9 is of another partition");
  rows = rowsOf({1, 2}, 1);
  rows.sums.pop_back();
  EXPECT_EQ(messageOf(rows, {}), "table user: 2 ids with 2 counts and 3 numbers");
}

}  // namespace
}  // namespace trainyard::runtime::rows
