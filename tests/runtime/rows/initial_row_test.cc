// First values of rows: equal for equal ids whoever asks, of the distribution that is asked for.
#include "runtime/rows/initial_row.h"

#include <cmath>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/rows/row_id.h"

namespace trainyard::runtime::rows {
namespace {

using ::testing::Each;
using ::testing::Lt;
using Kind = RowInitializer::Kind;

std::vector<float> row(RowInitializer initializer, std::uint64_t key, std::uint64_t id,
                       std::size_t dim) {
  std::vector<float> values(dim, 77);
  initialiseRow(initializer, key, id, values);
  return values;
}

struct Moments {
  double mean = 0, deviation = 0, largest = 0;
};

Moments momentsOf(RowInitializer initializer) {
  constexpr int kRows = 4096, kDim = 7;
  Moments moments;
  double squares = 0;
  for (std::uint64_t id = 0; id < kRows; ++id) {
    for (const float x : row(initializer, 5, id, kDim)) {
      moments.mean += x;
      squares += double(x) * x;
      moments.largest = std::max(moments.largest, std::fabs(double(x)));
    }
  }
  moments.mean /= kRows * kDim;
  moments.deviation = std::sqrt(squares / (kRows * kDim) - moments.mean * moments.mean);
  return moments;
}

TEST(InitialRow, HasTheDistributionThatIsAskedFor) {
  const Moments uniform = momentsOf({Kind::kUniform, 0.5F});
  EXPECT_NEAR(uniform.mean, 0, 0.01);
  EXPECT_NEAR(uniform.deviation, 0.5 / std::sqrt(3.0), 0.01);
  EXPECT_LE(uniform.largest, 0.5);
  // A standard normal variable within two deviations has 0.8796 of the deviation.
  const Moments normal = momentsOf({Kind::kTruncatedNormal, 0.5F});
  EXPECT_NEAR(normal.mean, 0, 0.01);
  EXPECT_NEAR(normal.deviation, 0.5 * 0.8796, 0.01);
  EXPECT_LE(normal.largest, 1);
  EXPECT_THAT(row({Kind::kZeros, 0}, 5, 9, 3), Each(0));
}

TEST(InitialRow, IsAFunctionOfSeedTableAndId) {
  for (const Kind kind : {Kind::kUniform, Kind::kTruncatedNormal}) {
    const auto wanted = row({kind, 1}, 5, 9, 6);
    EXPECT_EQ(row({kind, 1}, 5, 9, 6), wanted);
    EXPECT_NE(row({kind, 1}, 5, 10, 6), wanted);
    EXPECT_NE(row({kind, 1}, 6, 9, 6), wanted);
    // A longer row begins as a shorter one.
    auto longer = row({kind, 1}, 5, 9, 11);
    longer.resize(6);
    EXPECT_EQ(longer, wanted);
  }
}

// Checkpoints and servers of all versions have to agree on these.
TEST(RowId, ThePartitionOfAnIdNeverChanges) {
  EXPECT_EQ(mix64(1), 0x5692161D100B05E5U);
  EXPECT_EQ(saltOf("user"), 0x2F9213800814C032U);
  EXPECT_EQ(partitionOf(hashOf(0, saltOf("user"))), 236);
  EXPECT_EQ(partitionOf(hashOf(UINT64_MAX, saltOf("user"))), 668);
  EXPECT_NE(saltOf("user"), saltOf("ad"));
}

// Six deviations: of 1024 partitions none is full before the table is, but once in a million
// tables.
TEST(RowId, APartitionHasRoomForMoreThanItsShare) {
  EXPECT_EQ(partitionCap(100), 18);             // 0.098 + 6 x 0.3125, rounded up, + 16
  EXPECT_EQ(partitionCap(10'000), 45);          // 9.77 + 6 x 3.125
  EXPECT_EQ(partitionCap(10'000'000), 10'375);  // 9765.6 + 6 x 98.8
}

class Caps : public testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(RowsMax, Caps, testing::Values(100, 10'000, 10'000'000));

TEST_P(Caps, AreNotReachedByAsManyIdsAsTheTableMayHave) {
  std::vector<std::int64_t> held(kPartitions);
  const std::uint64_t salt = saltOf("user");
  for (std::int64_t id = 0; id < GetParam(); ++id)
    ++held[static_cast<std::size_t>(partitionOf(hashOf(static_cast<std::uint64_t>(id), salt)))];
  EXPECT_THAT(held, Each(Lt(partitionCap(GetParam()) + 1)));
}

}  // namespace
}  // namespace trainyard::runtime::rows
