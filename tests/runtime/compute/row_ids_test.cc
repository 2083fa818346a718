#include "runtime/compute/row_ids.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard::runtime {
namespace {

// What is asked for ahead is what the samples of these positions look up, in any order of the data.
TEST(StreamRowIds, AreThoseOfTheSamplesThatStandThere) {
  constexpr std::uint64_t kSeed = 5;
  constexpr std::int64_t kSamples = 50;
  v1::Training training;
  v1::DataSpec& spec = *training.mutable_data();
  spec.set_format("synthetic_ctr");
  spec.set_samples(kSamples);
  for (const auto& [name, kind] : {std::pair{"user", "Id"}, {"item", "Id"}, {"click", "Label"}}) {
    v1::ColumnSpec& column = *spec.add_columns();
    column.set_name(name);
    column.set_kind(kind);
    if (column.kind() == "Id") column.set_ids(1'000'000);
  }
  v1::TableSpec& table = *training.add_tables();
  table.set_name("items");
  table.set_dim(4);
  table.add_features("item");
  for (const std::string order : {"Shuffled", "Sequential", "Blocks"}) {
    spec.set_order(order);
    if (order == "Blocks") spec.set_block_samples(8);
    const auto data = openData(spec);
    ASSERT_TRUE(data.ok()) << data.status();
    const auto tables = tableLookups(training, data->train->columns());
    ASSERT_TRUE(tables.ok()) << tables.status();
    StreamRowIds ids(*data->train, *tables, kSeed, data->order);
    for (const std::int64_t first :
         {std::int64_t{0}, std::int64_t{30}, kSamples - 4, 3 * kSamples}) {
      std::vector<std::int64_t> samples(10);
      SampleStream(kSeed, kSamples, data->order).lookUp(first, samples);
      std::vector<FeatureIds> features;
      data->train->readFeatures(samples, features);
      EXPECT_EQ(ids.at(first, 10), (RowIds{features[1].ids})) << order << " at " << first;
    }
    EXPECT_EQ(ids.at(0, 0), RowIds(1)) << "a worker without samples needs no rows";
  }
}

}  // namespace
}  // namespace trainyard::runtime
