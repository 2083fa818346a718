// Steps in which some tensors are summed by rows and others whole, against a sum of them all whole.
#include "runtime/ring/row_exchange.h"

#include <cmath>
#include <cstring>
#include <numeric>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "tests/runtime/ring/exchange_ranks.h"

namespace trainyard::runtime::ring {
namespace {

using collective::PlannedTensor;
using testing::HasSubstr;

constexpr std::int64_t kRows = 3000;
constexpr std::int64_t kWidth = 8;
constexpr int kRanks = 3;

// Two tables among tensors that are summed whole, one of them after all others.
std::vector<PlannedTensor> planned(bool by_rows) {
  return {{"bias", ElementType::kFloat32, 5},
          {"words", ElementType::kFloat32, kRows * kWidth, by_rows ? kRows : 0},
          {"kernel", ElementType::kFloat32, 700},
          {"places", ElementType::kFloat32, 40, by_rows ? 20 : 0}};
}

// Numbers whose sum depends on the order of addition.
float roughAt(int rank, int step, std::int64_t i) {
  return std::ldexp(1.0F + static_cast<float>((i * 31 + rank * 17 + step) % 1009) / 1009.0F,
                    static_cast<int>((i + rank * 5) % 40) - 20);
}

// What a rank has of a table: some rows are those of others, too; in step 3 nobody has any, and
// rank 2 never has.
collective::SparseRows tableOf(const PlannedTensor& tensor, std::int64_t rows, int rank, int step) {
  collective::SparseRows own{rows, tensor.elements / rows, {}, {}};
  if (rank == 2 || step == 3) return own;
  for (std::int64_t row = (rank + step) % 3; row < rows; row += 2 + 5 * rank) {
    own.indices.push_back(row);
    for (std::int64_t k = 0; k < own.width; ++k)
      own.values.push_back(roughAt(rank, step, row * own.width + k));
  }
  return own;
}

std::vector<float> whole(const collective::SparseRows& table) {
  std::vector<float> matrix(static_cast<std::size_t>(table.rows * table.width));
  for (std::size_t i = 0; i < table.values.size(); ++i) {
    const auto width = static_cast<std::size_t>(table.width);
    matrix[static_cast<std::size_t>(table.indices[i / width]) * width + i % width] =
        table.values[i];
  }
  return matrix;
}

// The sums of all tensors of a step.
StatusOr<std::vector<std::vector<float>>> stepOf(Exchange& exchange, int rank, int step) {
  const std::vector<PlannedTensor> tensors = planned(true);
  exchange.begin(step);
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const auto n = static_cast<std::size_t>(tensors[t].elements);
    if (tensors[t].rows == 0) {
      std::vector<float> values(n);
      for (std::size_t i = 0; i < n; ++i)
        values[i] = roughAt(rank, step, static_cast<std::int64_t>(i));
      exchange.submit(t, values);
      continue;
    }
    const collective::SparseRows table = tableOf(tensors[t], tensors[t].rows, rank, step);
    if (exchange.isByRows(t)) {
      exchange.submitRows(t, table.indices, table.values);
    } else {
      exchange.submit(t, whole(table));
    }
  }
  TY_ASSIGN_OR_RETURN(const StepTotals totals, exchange.finish({0.5 * rank, 2}));
  if (totals.loss_sum != 1.5 || totals.samples != 2 * kRanks) return absl::InternalError("totals");
  std::vector<std::vector<float>> sums;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const std::span<float> sum = exchange.sum(t);
    sums.emplace_back(sum.begin(), sum.end());
    std::fill(sum.begin(), sum.end(), 7.0F);  // whoever takes the step may change it
  }
  return sums;
}

using Sums = std::vector<std::vector<std::vector<float>>>;  // by step

// Of every rank, after kSteps steps; `bytes` are what rank 0 sent.
std::vector<Sums> train(Where where, bool by_rows, std::uint64_t* bytes) {
  constexpr int kSteps = 6;
  Ranks ranks(kRanks, where, {}, {}, planned(by_rows));
  std::vector<Sums> all(kRanks);
  const auto results = ranks.run([&](Exchange& exchange, int rank) -> Status {
    TY_RETURN_IF_ERROR(ranks.join(exchange, rank));
    for (int step = 0; step < kSteps; ++step) {
      TY_ASSIGN_OR_RETURN(auto sums, stepOf(exchange, rank, step));
      all[static_cast<std::size_t>(rank)].push_back(std::move(sums));
    }
    return absl::OkStatus();
  });
  for (const Status& result : results) EXPECT_TRUE(result.ok()) << result;
  *bytes = ranks.exchanges[0]->work().all_reduce.bytes_sent;
  return all;
}

bool sameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class RowExchangeTest : public testing::TestWithParam<Where> {};

// The tables' sums have the bits of a sum in the order of ranks whichever way they go; with
// `deterministic` (here: but for several hosts) all tensors have.
TEST_P(RowExchangeTest, SumsRowsToTheBitsOfTheWholeMatrices) {
  std::uint64_t bytes = 0;
  std::uint64_t whole_bytes = 0;
  const std::vector<Sums> by_rows = train(GetParam(), true, &bytes);
  const std::vector<Sums> expected = train(Where::kTcp, false, &whole_bytes);
  for (int r = 0; r < kRanks; ++r) {
    const Sums& sums = by_rows[static_cast<std::size_t>(r)];
    ASSERT_EQ(sums.size(), expected[0].size());
    for (std::size_t step = 0; step < sums.size(); ++step) {
      for (std::size_t t = 0; t < sums[step].size(); ++t) {
        if (GetParam() == Where::kHosts && planned(true)[t].rows == 0) continue;
        EXPECT_TRUE(sameBits(sums[step][t], expected[0][step][t]))
            << fmt::format("rank {}, step {}, tensor {}", r, step, t);
      }
    }
  }
  EXPECT_GT(bytes, 0u);
  EXPECT_LT(bytes, whole_bytes);
}

// Nobody's rows change what others have.
TEST_P(RowExchangeTest, ARankWithoutSamplesBringsNoRows) {
  Ranks ranks(2, GetParam(), {}, {}, planned(true));
  const auto results = ranks.run([&](Exchange& exchange, int rank) -> Status {
    TY_RETURN_IF_ERROR(ranks.join(exchange, rank));
    exchange.begin();
    if (rank == 1) {
      exchange.submitNothing();
    } else {
      exchange.submit(0, std::vector<float>(5, 1));
      exchange.submitRows(1, std::vector<std::int64_t>{7, 9}, std::vector<float>(16, 2));
      exchange.submit(2, std::vector<float>(700, 3));
      exchange.submitRows(3, std::vector<std::int64_t>{19}, std::vector<float>{4, 5});
    }
    TY_RETURN_IF_ERROR(exchange.finish({1, 1}).status());
    const std::span<float> words = exchange.sum(1);
    const std::span<float> places = exchange.sum(3);
    const bool right = exchange.sum(0)[4] == 1 && exchange.sum(2)[699] == 3 && words[55] == 0 &&
                       words[56] == 2 && words[63] == 2 && words[64] == 0 && words[72] == 2 &&
                       words[80] == 0 && places[37] == 0 && places[38] == 4 && places[39] == 5;
    return right ? absl::OkStatus() : absl::InternalError("other sums");
  });
  for (const Status& result : results) EXPECT_TRUE(result.ok()) << result;
}

TEST_P(RowExchangeTest, TablesMayBeAllThereIs) {
  const std::vector<PlannedTensor> tables = {{"words", ElementType::kFloat32, 40, 20}};
  // There is no size of buckets to be tried.
  Ranks ranks(kRanks, GetParam(), {}, {16, 1 << 20}, tables);
  const auto results = ranks.run([&](Exchange& exchange, int rank) -> Status {
    TY_RETURN_IF_ERROR(ranks.join(exchange, rank));
    for (int step = 0; step < 4; ++step) {
      exchange.begin(step);
      exchange.submitRows(0, std::vector<std::int64_t>{rank, 19}, std::vector<float>{1, 2, 3, 4});
      TY_RETURN_IF_ERROR(exchange.finish({1, 1}).status());
      const std::span<float> sum = exchange.sum(0);
      if (sum[4] != 1 || sum[5] != 2 || sum[6] != 0 || sum[38] != 9 || sum[39] != 12)
        return absl::InternalError("other sums");
    }
    return absl::OkStatus();
  });
  for (const Status& result : results) EXPECT_TRUE(result.ok()) << result;
}

// Where there is little else, rows still go through memory in large pieces.
TEST_P(RowExchangeTest, ManyRowsTakeFewRounds) {
  constexpr std::int64_t kMany = 50'000;
  const std::vector<PlannedTensor> tables = {
      {"words", ElementType::kFloat32, kMany * kWidth, kMany}};
  Ranks ranks(2, GetParam(), {}, {}, tables);
  const auto results = ranks.run([&](Exchange& exchange, int rank) -> Status {
    TY_RETURN_IF_ERROR(ranks.join(exchange, rank));
    std::vector<std::int64_t> rows(kMany);
    std::iota(rows.begin(), rows.end(), std::int64_t{0});
    exchange.begin();
    exchange.submitRows(0, rows, std::vector<float>(kMany * kWidth, 1));
    TY_RETURN_IF_ERROR(exchange.finish({1, 1}).status());
    const std::span<float> sum = exchange.sum(0);
    const bool right = std::all_of(sum.begin(), sum.end(), [](float x) { return x == 2; });
    return right ? absl::OkStatus() : absl::InternalError("other sums");
  });
  for (const Status& result : results) EXPECT_TRUE(result.ok()) << result;
  EXPECT_LT(ranks.exchanges[0]->work().all_reduce.rounds, 100u);
}

// What is left of a step that was given up does not come up in the next.
TEST_P(RowExchangeTest, AStepThatWasGivenUpLeavesNothing) {
  Ranks ranks(2, GetParam(), {}, {}, planned(true));
  const auto results = ranks.run([&](Exchange& exchange, int rank) -> Status {
    TY_RETURN_IF_ERROR(ranks.join(exchange, rank));
    exchange.begin();
    exchange.submitRows(1, std::vector<std::int64_t>{5}, std::vector<float>(8, 100));
    exchange.abandon();
    exchange.begin();
    exchange.submitNothing();
    TY_RETURN_IF_ERROR(exchange.finish({1, 1}).status());
    return exchange.sum(1)[40] == 0 ? absl::OkStatus() : absl::InternalError("it came up");
  });
  for (const Status& result : results) EXPECT_TRUE(result.ok()) << result;
}

// Rows travel as float32 whatever the buckets travel as.
TEST(RowExchangeWireTest, RowsAreNotRounded) {
  Ranks ranks(2, Where::kTcp, ElementType::kBFloat16, {}, planned(true));
  const float fine = 1.0F + std::ldexp(1.0F, -20);
  const auto results = ranks.run([&](Exchange& exchange, int rank) -> Status {
    TY_RETURN_IF_ERROR(ranks.join(exchange, rank));
    exchange.begin();
    exchange.submit(0, std::vector<float>(5, fine));
    exchange.submitRows(1, std::vector<std::int64_t>{rank}, std::vector<float>(8, fine));
    exchange.submit(2, std::vector<float>(700, 1));
    exchange.submitRows(3, {}, {});
    TY_RETURN_IF_ERROR(exchange.finish({1, 1}).status());
    const bool right =
        exchange.sum(0)[0] == 2 && exchange.sum(1)[0] == fine && exchange.sum(1)[15] == fine;
    return right ? absl::OkStatus() : absl::InternalError("other sums");
  });
  for (const Status& result : results) EXPECT_TRUE(result.ok()) << result;
}

TEST_P(RowExchangeTest, ARankThatHasTheTableWholeIsNamed) {
  Ranks ranks(kRanks, GetParam(), {}, {}, planned(true));
  ranks.tensors = planned(false);
  ranks.replace(1);
  const auto results =
      ranks.run([&](Exchange& exchange, int rank) { return ranks.join(exchange, rank); });
  for (const Status& result : results) {
    EXPECT_EQ(result.code(), absl::StatusCode::kFailedPrecondition) << result;
    EXPECT_EQ(transport::blamedRank(result), 1) << result;
    EXPECT_THAT(std::string(result.message()),
                HasSubstr("tensor 1 is words of 24000 float32 by its 3000 rows on rank 0 and words "
                          "of 24000 float32 on rank 1"));
  }
}

TEST_P(RowExchangeTest, ARankThatLeavesIsNamed) {
  Ranks ranks(kRanks, GetParam(), {}, {}, planned(true));
  const auto results = ranks.run([&](Exchange& exchange, int rank) -> Status {
    TY_RETURN_IF_ERROR(ranks.join(exchange, rank));
    if (rank == 2) {
      ranks.exchanges[2].reset();
      return absl::OkStatus();
    }
    return stepOf(exchange, rank, 0).status();
  });
  for (int r = 0; r < 2; ++r)
    EXPECT_EQ(transport::blamedRank(results[static_cast<std::size_t>(r)]), 2) << results[r];
}

INSTANTIATE_TEST_SUITE_P(, RowExchangeTest,
                         testing::Values(Where::kTcp, Where::kShared, Where::kHosts), nameOf);

}  // namespace
}  // namespace trainyard::runtime::ring
