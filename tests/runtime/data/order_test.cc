#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/data/dataset.h"

namespace trainyard::runtime {
namespace {

using testing::StartsWith;

v1::DataSpec clicks(const std::string& order, std::int64_t block_samples = 0,
                    std::int64_t samples = 10) {
  v1::DataSpec spec;
  spec.set_format("synthetic_ctr");
  v1::ColumnSpec& user = *spec.add_columns();
  user.set_name("user");
  user.set_kind("Id");
  user.set_ids(5);
  v1::ColumnSpec& label = *spec.add_columns();
  label.set_name("click");
  label.set_kind("Label");
  spec.set_samples(samples);
  if (!order.empty()) spec.set_order(order);
  if (block_samples != 0) spec.set_block_samples(block_samples);
  return spec;
}

TEST(Order, IsThatOfTheJob) {
  using Kind = SampleOrder::Kind;
  const auto orderOf = [](const v1::DataSpec& spec) {
    const auto splits = openData(spec);
    EXPECT_TRUE(splits.ok()) << splits.status();
    return splits.ok() ? splits->order : SampleOrder{};
  };
  EXPECT_EQ(orderOf(clicks("")).kind, Kind::kShuffled);
  EXPECT_EQ(orderOf(clicks("Shuffled")).kind, Kind::kShuffled);
  EXPECT_EQ(orderOf(clicks("Sequential")).kind, Kind::kSequential);
  const SampleOrder blocks = orderOf(clicks("Blocks", 7));
  EXPECT_EQ(blocks.kind, Kind::kBlocks);
  EXPECT_EQ(blocks.block_samples, 7);
}

TEST(Prefetch, IsThatOfTheJob) {
  v1::DataSpec spec = clicks("");
  EXPECT_EQ(openData(spec)->prefetch, 0);
  spec.set_prefetch(3);
  EXPECT_EQ(openData(spec)->prefetch, 3);
  spec.set_prefetch(65);
  EXPECT_EQ(std::string(openData(spec).status().message()),
            "training.data.prefetch: 65, expected 0 to 64");
}

TEST(Order, LiftsTheBoundOfAPermutation) {
  constexpr std::int64_t kMany = 2'000'000'000;
  EXPECT_TRUE(openData(clicks("Sequential", 0, kMany)).ok());
  EXPECT_TRUE(openData(clicks("Blocks", 1000, kMany)).ok());
  EXPECT_FALSE(openData(clicks("Shuffled", 0, kMany)).ok());
}

TEST(Order, ErrorsNameTheField) {
  for (const auto& [spec, message] : std::vector<std::pair<v1::DataSpec, std::string>>{
           {clicks("Random"),
            "training.data.order: \"Random\", expected Shuffled, Blocks or Sequential"},
           {clicks("Blocks"), "training.data.blockSamples: 0, expected 1 to 1000000"},
           {clicks("Blocks", 1'000'001), "training.data.blockSamples: 1000001, expected 1 to 1000"},
           {clicks("", 5), "training.data.blockSamples: only with order Blocks"},
           {clicks("Sequential", 5), "training.data.blockSamples: only with order Blocks"},
           {clicks("Sequential", 0, 0), "training.data.samples: 0, expected 1 to 1099511627776"}}) {
    const Status status = openData(spec).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), StartsWith(message));
  }
}

}  // namespace
}  // namespace trainyard::runtime
