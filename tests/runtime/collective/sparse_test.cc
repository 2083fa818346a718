// Sums of sparse rows against dense sums, over every transport; and what they cost by the formula.
#include "runtime/collective/sparse.h"

#include <cmath>
#include <cstring>
#include <mutex>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "tests/runtime/collective/ranks.h"

namespace trainyard::runtime::collective {
namespace {

using testing::Group;
using testing::runRanks;

constexpr std::int64_t kRows = 1000;

// Numbers whose sum depends on the order of addition.
float unevenAt(int rank, std::int64_t i) {
  return std::ldexp(1.0f + static_cast<float>((i * 31 + rank * 17) % 1009) / 1009.0f,
                    static_cast<int>((i + rank * 5) % 40) - 20);
}

// What a rank brings: in no order, some rows several times; `count` may differ from rank to rank.
SparseRows rowsOf(int rank, std::int64_t count, std::int64_t width) {
  SparseRows own{kRows, width, {}, {}};
  for (std::int64_t i = 0; i < count; ++i) {
    own.indices.push_back((i * 37 + rank * 5) % (i % 3 == 0 ? 7 : kRows));
    for (std::int64_t k = 0; k < width; ++k) own.values.push_back(unevenAt(rank, i * width + k));
  }
  return own;
}

// Each rank's rows first, then the ranks' in their order.
std::vector<float> denseSum(const std::vector<SparseRows>& ranks, std::int64_t width) {
  std::vector<float> sum(static_cast<std::size_t>(kRows * width));
  for (const SparseRows& own : ranks) {
    std::vector<float> mine(sum.size());
    for (std::size_t i = 0; i < own.values.size(); ++i) {
      const auto row = static_cast<std::size_t>(own.indices[i / static_cast<std::size_t>(width)]);
      mine[row * static_cast<std::size_t>(width) + i % static_cast<std::size_t>(width)] +=
          own.values[i];
    }
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += mine[i];
  }
  return sum;
}

Status expectSum(const SparseRows& got, const std::vector<float>& expected) {
  std::vector<float> dense(expected.size());
  std::int64_t last = -1;
  const auto width = static_cast<std::size_t>(got.width);
  for (std::size_t i = 0; i < got.indices.size(); ++i) {
    if (got.indices[i] <= last) return absl::InternalError("not ascending");
    last = got.indices[i];
    std::copy_n(got.values.data() + i * width, width,
                dense.data() + static_cast<std::size_t>(last) * width);
  }
  if (std::memcmp(dense.data(), expected.data(), 4 * dense.size()) == 0) return absl::OkStatus();
  return absl::InternalError("other bits than the dense sum");
}

class SparseTest : public ::testing::TestWithParam<Group> {};

TEST_P(SparseTest, SumsAsADenseSumInTheOrderOfRanks) {
  for (const std::int64_t width : {1, 5, 64}) {
    for (const std::int64_t unit : {0, 1, 40}) {
      std::vector<SparseRows> brought;
      for (int r = 0; r < GetParam().ranks; ++r)
        brought.push_back(rowsOf(r, r == 1 ? 0 : unit * (r + 1), width));
      const std::vector<float> expected = denseSum(brought, width);
      const auto results = runRanks(GetParam(), {}, [&](Collective& c) -> Status {
        TY_ASSIGN_OR_RETURN(const SparseRows sum,
                            sumRows(c, brought[static_cast<std::size_t>(c.rank())]));
        TY_RETURN_IF_ERROR(expectSum(sum, expected));
        std::vector<float> matrix(expected.size(), 3.0F);
        TY_RETURN_IF_ERROR(sumRowsInto(c, brought[static_cast<std::size_t>(c.rank())], matrix));
        const bool same = std::memcmp(matrix.data(), expected.data(), 4 * matrix.size()) == 0;
        return same ? absl::OkStatus() : absl::InternalError("another matrix");
      });
      for (const Status& result : results) EXPECT_TRUE(result.ok()) << width << ": " << result;
    }
  }
}

TEST_P(SparseTest, RefusesMatricesThatDiffer) {
  if (GetParam().ranks == 1) return;  // differs from nobody
  const auto results = runRanks(GetParam(), {}, [&](Collective& c) {
    SparseRows own = rowsOf(c.rank(), 3, 4);
    if (c.rank() == c.size() - 1) own.rows += 1;
    return sumRows(c, own).status();
  });
  for (const Status& result : results) {
    EXPECT_EQ(result.code(), absl::StatusCode::kFailedPrecondition) << result;
    EXPECT_EQ(transport::blamedRank(result), GetParam().ranks - 1) << result;
  }
}

TEST_P(SparseTest, RefusesRowsOutsideOfTheMatrix) {
  const auto results = runRanks(GetParam(), {}, [](Collective& c) -> Status {
    for (const std::int64_t wrong : {std::int64_t{-1}, kRows}) {
      SparseRows own{kRows, 1, {wrong}, {1.0f}};
      if (sumRows(c, own).status().code() != absl::StatusCode::kInvalidArgument)
        return absl::InternalError("accepted");
    }
    std::vector<float> small(5);
    if (sumRowsInto(c, {kRows, 1, {1}, {1.0F}}, small).code() != absl::StatusCode::kInvalidArgument)
      return absl::InternalError("accepted");
    return c.barrier();  // and the group goes on
  });
  for (const Status& result : results) EXPECT_TRUE(result.ok()) << result;
}

INSTANTIATE_TEST_SUITE_P(Groups, SparseTest, ::testing::ValuesIn(testing::groups()),
                         [](const auto& info) { return nameOf(info.param); });

// What a rank that keeps to the protocol never sends: rows in another order, or of no such matrix.
TEST(SparseRowsTest, WhatAnotherRankSendsIsChecked) {
  for (const std::vector<std::int64_t>& wrong :
       std::vector<std::vector<std::int64_t>>{{5, 4}, {5, 5}, {-1, 2}, {3, kRows}}) {
    const auto results = runRanks({testing::Over::kTcp, 2}, {}, [&](Collective& c) -> Status {
      if (c.rank() == 0) return sumRows(c, {kRows, 1, {1}, {1.0f}}).status();
      std::vector<std::int64_t> shapes = {0, 0, 0, 2, kRows, 1};
      const auto gather = [&](auto& numbers, ElementType type,
                              const std::vector<std::int64_t>& counts) {
        return c.allGather({reinterpret_cast<std::byte*>(numbers.data()),
                            static_cast<std::int64_t>(numbers.size()), type},
                           counts);
      };
      TY_RETURN_IF_ERROR(gather(shapes, ElementType::kInt64, {3, 3}));
      std::vector<std::int64_t> indices = {0, wrong[0], wrong[1]};
      TY_RETURN_IF_ERROR(gather(indices, ElementType::kInt64, {1, 2}));
      std::vector<float> values(3);
      return gather(values, ElementType::kFloat32, {1, 2});
    });
    EXPECT_EQ(results[0].code(), absl::StatusCode::kDataLoss) << results[0];
    EXPECT_EQ(transport::blamedRank(results[0]), 1) << results[0];
  }
}

TEST(SparseRowsTest, RowsAreCoalescedInTheirOrder) {
  const SparseRows sum = coalesce({10, 2, {7, 2, 7, 7}, {1e8F, 1, 5, 6, 1, 2, -1e8F, 3}});
  EXPECT_EQ(sum.indices, (std::vector<std::int64_t>{2, 7}));
  volatile float first = 1e8F;
  first = first + 1;
  first = first - 1e8F;
  EXPECT_EQ(sum.values, (std::vector<float>{5, 6, first, 6}));
}

TEST(SparseRowsTest, SendsWhatTheFormulaSays) {
  for (const int ranks : {1, 2, 3, 5}) {
    for (const std::int64_t unit : {0, 1, 300}) {
      constexpr std::int64_t kWidth = 300;
      std::vector<std::int64_t> counts;
      std::vector<SparseRows> brought;
      for (int r = 0; r < ranks; ++r) {
        brought.push_back(rowsOf(r, unit * (r + 1), kWidth));
        counts.push_back(static_cast<std::int64_t>(coalesce(brought.back()).indices.size()));
      }
      std::mutex mutex;
      const auto results =
          runRanks({testing::Over::kInProcess, ranks}, {}, [&](Collective& c) -> Status {
            TY_RETURN_IF_ERROR(sumRows(c, brought[static_cast<std::size_t>(c.rank())]).status());
            const Totals totals = c.totals();
            const Cost expected = sumRowsCost(counts, kWidth, c.rank());
            const std::lock_guard lock(mutex);
            const std::string what =
                fmt::format("{} ranks, {} rows, rank {}", ranks, unit, c.rank());
            EXPECT_EQ(totals.bytes_sent, static_cast<std::uint64_t>(expected.bytes)) << what;
            EXPECT_EQ(totals.messages_sent, static_cast<std::uint64_t>(expected.messages)) << what;
            EXPECT_EQ(totals.rounds, static_cast<std::uint64_t>(expected.rounds)) << what;
            return absl::OkStatus();
          });
      for (const Status& result : results) EXPECT_TRUE(result.ok()) << result;
    }
  }
}

// Where few rows are touched it sends less than a dense all-reduce, where many are, more.
TEST(SparseRowsTest, PaysWhereFewRowsAreTouched) {
  const auto dense = ringAllReduceCost(100'000 * 64, 4, 0, 4).bytes;
  EXPECT_LT(20 * sumRowsCost(std::vector<std::int64_t>(4, 1000), 64, 0).bytes, dense);
  EXPECT_GT(sumRowsCost(std::vector<std::int64_t>(4, 80'000), 64, 0).bytes, dense);
}

}  // namespace
}  // namespace trainyard::runtime::collective
