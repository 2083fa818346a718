// Ranks as threads over real sockets and shared memory.
#include "runtime/ring/exchange.h"

#include <cmath>

#include "tests/runtime/ring/exchange_ranks.h"

namespace trainyard::runtime::ring {
namespace {

Status submitAll(Exchange& exchange, float value) {
  for (std::size_t t = 0; t < kTensors.size(); ++t) {
    const auto n = static_cast<std::size_t>(kTensors[t].elements);
    exchange.submit(t, std::vector<float>(n, value * static_cast<float>(t + 1)));
  }
  return absl::OkStatus();
}

class ExchangeTest : public testing::TestWithParam<Where> {};

TEST_P(ExchangeTest, SumsStepAfterStep) {
  Ranks ranks(3, GetParam());
  const auto results = ranks.run([&](Exchange& exchange, int rank) -> Status {
    TY_RETURN_IF_ERROR(ranks.join(exchange, rank));
    for (int step = 1; step <= 20; ++step) {
      exchange.begin();
      TY_RETURN_IF_ERROR(submitAll(exchange, static_cast<float>(step * (rank + 1))));
      TY_ASSIGN_OR_RETURN(const StepTotals totals, exchange.finish({0.5 * rank, 10, 2.0 * rank}));
      if (totals.loss_sum != 1.5 || totals.samples != 30 || totals.hits != 6)
        return absl::InternalError("totals");
      for (std::size_t t = 0; t < kTensors.size(); ++t) {
        for (const float sum : exchange.sum(t)) {
          if (sum != static_cast<float>(6 * step) * static_cast<float>(t + 1))
            return absl::InternalError("sum");
        }
      }
    }
    return absl::OkStatus();
  });
  for (const Status& result : results) EXPECT_TRUE(result.ok()) << result;
  std::uint64_t bytes = 0;  // by all: of hosts of unequal size, some leave it to others
  for (const auto& exchange : ranks.exchanges) {
    const ExchangeWork work = exchange->work();
    bytes += work.all_reduce.bytes_sent + work.all_reduce.bytes_received;
    EXPECT_GT(work.all_reduce.seconds, Duration(0));
    EXPECT_GT(work.waited, Duration(0));
    EXPECT_EQ(work.broadcast.bytes_sent + work.broadcast.bytes_received, 0u);
  }
  EXPECT_GE(bytes, 3 * 20u * 70'008 * sizeof(float));
}

// Half the bytes; what 16 bits hold is summed without an error.
TEST_P(ExchangeTest, SixteenBitsOnTheWire) {
  for (const ElementType wire : {ElementType::kFloat16, ElementType::kBFloat16}) {
    Ranks ranks(2, GetParam(), wire);
    const auto results = ranks.run([&](Exchange& exchange, int rank) -> Status {
      TY_RETURN_IF_ERROR(ranks.join(exchange, rank));
      exchange.begin();
      TY_RETURN_IF_ERROR(submitAll(exchange, rank == 0 ? 8.0F : 0.5F));
      TY_ASSIGN_OR_RETURN(const StepTotals totals, exchange.finish({1e-9 * rank, 1}));
      if (totals.loss_sum != 1e-9) return absl::InternalError("totals are not gradients");
      for (std::size_t t = 0; t < kTensors.size(); ++t) {
        for (const float sum : exchange.sum(t)) {
          if (sum != 8.5F * static_cast<float>(t + 1)) return absl::InternalError("sum");
        }
      }
      return absl::OkStatus();
    });
    for (const Status& result : results) EXPECT_TRUE(result.ok()) << result;
    const ExchangeWork work = ranks.exchanges[0]->work();
    EXPECT_GE(work.all_reduce.bytes_sent, 70'008u * 2);
    EXPECT_LT(work.all_reduce.bytes_sent, 70'008u * 2 + 1000);
  }
}

// A rank without samples leaves every bit of the others' sum, the sign of zero too.
TEST_P(ExchangeTest, NothingChangesNoBit) {
  Ranks ranks(2, GetParam());
  const auto results = ranks.run([&](Exchange& exchange, int rank) -> Status {
    TY_RETURN_IF_ERROR(ranks.join(exchange, rank));
    exchange.begin();
    if (rank == 0) {
      TY_RETURN_IF_ERROR(submitAll(exchange, -0.0F));
    } else {
      exchange.submitNothing();
    }
    TY_RETURN_IF_ERROR(exchange.finish({1, 1}).status());
    for (const float sum : exchange.sum(1)) {
      if (sum != 0 || !std::signbit(sum)) return absl::InternalError("the sign is gone");
    }
    return absl::OkStatus();
  });
  for (const Status& result : results) EXPECT_TRUE(result.ok()) << result;
}

std::vector<float> sumsOf(Exchange& exchange) {
  std::vector<float> all;
  for (std::size_t t = 0; t < kTensors.size(); ++t) {
    const std::span<float> sum = exchange.sum(t);
    all.insert(all.end(), sum.begin(), sum.end());
  }
  return all;
}

// One of the ranks is new in the second group, and takes the size that the others have found. The
// sums are right with every size, and where ranks add in their order, of the same bits.
TEST_P(ExchangeTest, TheSizeOfBucketsIsFoundByTrying) {
  constexpr int kSteps = BucketTuner::kWarmUp + 3 * BucketTuner::kTries + 3;
  const std::vector<std::int64_t> sizes = {16, 280'024, 1 << 20};
  Ranks ranks(3, GetParam(), {}, sizes);
  const auto values = [](int rank, std::size_t tensor) {
    std::vector<float> values(static_cast<std::size_t>(kTensors[tensor].elements));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = std::ldexp(1.0F + static_cast<float>(i % 97) / 97.0F, rank * 9 - 9);
    return values;
  };
  std::vector<std::vector<float>> first(3);
  const auto train = [&](Exchange& exchange, int rank) -> Status {
    TY_RETURN_IF_ERROR(ranks.join(exchange, rank));
    std::vector<float>& expected = first[static_cast<std::size_t>(rank)];
    for (int step = 0; step < kSteps; ++step) {
      exchange.begin(step);
      for (std::size_t t = 0; t < kTensors.size(); ++t) exchange.submit(t, values(rank, t));
      TY_ASSIGN_OR_RETURN(const StepTotals totals, exchange.finish({1, 2, rank == 1 ? -1.0 : 2.0}));
      if (totals.loss_sum != 3 || totals.samples != 6) return absl::InternalError("totals");
      if (totals.hits >= 0) return absl::InternalError("one has not counted");
      std::vector<float> sums = sumsOf(exchange);
      if (expected.empty()) expected = sums;
      const bool same = GetParam() == Where::kHosts
                            ? std::abs(sums[100] - expected[100]) < 1e-3F * expected[100]
                            : sums == expected;
      if (!same) return absl::InternalError("the size of buckets changes the sums");
    }
    return absl::OkStatus();
  };
  const auto sizesNow = [&] {
    std::vector<std::int64_t> now;
    for (const auto& exchange : ranks.exchanges) now.push_back(exchange->bucketBytes());
    return now;
  };
  for (const Status& result : ranks.run(train)) EXPECT_TRUE(result.ok()) << result;
  const std::int64_t chosen = sizesNow()[0];
  EXPECT_NE(std::find(sizes.begin(), sizes.end(), chosen), sizes.end()) << chosen;
  EXPECT_EQ(sizesNow(), std::vector<std::int64_t>(3, chosen));
  ranks.replace(0);
  ranks.place.epoch = 2;
  const auto joined =
      ranks.run([&](Exchange& exchange, int rank) -> Status { return ranks.join(exchange, rank); });
  for (const Status& result : joined) EXPECT_TRUE(result.ok()) << result;
  EXPECT_EQ(sizesNow(), std::vector<std::int64_t>(3, chosen)) << "the new one has learned it";
  ranks.place.epoch = 3;
  for (const Status& result : ranks.run(train)) EXPECT_TRUE(result.ok()) << result;
}

// Nobody is left who has chosen: all try again, in step.
TEST_P(ExchangeTest, WhatNobodyHasChosenIsTriedAgain) {
  Ranks ranks(2, GetParam(), {}, {16, 1 << 20});
  for (int epoch = 1; epoch <= 3; ++epoch) {
    ranks.place.epoch = epoch;
    const auto results = ranks.run([&](Exchange& exchange, int rank) -> Status {
      TY_RETURN_IF_ERROR(ranks.join(exchange, rank));
      for (int step = 0; step < 5 * epoch; ++step) {
        exchange.begin(step);
        TY_RETURN_IF_ERROR(submitAll(exchange, 1));
        TY_RETURN_IF_ERROR(exchange.finish({1, 1}).status());
        if (sumsOf(exchange)[0] != 2) return absl::InternalError("sum");
      }
      return absl::OkStatus();
    });
    for (const Status& result : results) EXPECT_TRUE(result.ok()) << result;
    if (epoch == 1) ranks.replace(1);
  }
  EXPECT_EQ(ranks.exchanges[0]->bucketBytes(), ranks.exchanges[1]->bucketBytes());
}

// One rank does not come to the step: the others wait until they are told not to, and meet again.
TEST_P(ExchangeTest, ACancelledStepLeavesRoomForTheNextGroup) {
  Ranks ranks(2, GetParam());
  const auto first = ranks.run([&](Exchange& exchange, int rank) -> Status {
    TY_RETURN_IF_ERROR(ranks.join(exchange, rank));
    if (rank == 1) {
      ranks.cancel = true;
      return absl::OkStatus();
    }
    exchange.begin();
    TY_RETURN_IF_ERROR(submitAll(exchange, 1));
    return exchange.finish({1, 1}).status();
  });
  EXPECT_TRUE(absl::IsCancelled(first[0])) << first[0];
  ranks.cancel = false;
  ranks.place.epoch = 2;
  const auto second = ranks.run([&](Exchange& exchange, int rank) -> Status {
    TY_RETURN_IF_ERROR(ranks.join(exchange, rank));
    exchange.begin();
    TY_RETURN_IF_ERROR(submitAll(exchange, 1));
    return exchange.finish({1, 1}).status();
  });
  for (const Status& result : second) EXPECT_TRUE(result.ok()) << result;
}

TEST_P(ExchangeTest, ARankThatLeavesIsNamed) {
  Ranks ranks(3, GetParam());
  const auto results = ranks.run([&](Exchange& exchange, int rank) -> Status {
    TY_RETURN_IF_ERROR(ranks.join(exchange, rank));
    exchange.begin();
    if (rank == 2) {
      ranks.exchanges[2].reset();
      return absl::OkStatus();
    }
    TY_RETURN_IF_ERROR(submitAll(exchange, 1));
    return exchange.finish({1, 1}).status();
  });
  for (int r = 0; r < 2; ++r)
    EXPECT_EQ(transport::blamedRank(results[static_cast<std::size_t>(r)]), 2) << results[r];
}

INSTANTIATE_TEST_SUITE_P(, ExchangeTest,
                         testing::Values(Where::kTcp, Where::kTls, Where::kShared, Where::kHosts),
                         nameOf);

}  // namespace
}  // namespace trainyard::runtime::ring
