#include "runtime/data/table_lookup.h"

#include <cmath>

#include "base/core/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Columns threeColumns() {
  return {.features = {"user", "item", "friends"}, .numbers = {"age"}};
}

v1::TableSpec* addTable(v1::Training& training, const std::string& name, int dim,
                        const std::vector<std::string>& features) {
  v1::TableSpec* const table = training.add_tables();
  table->set_name(name);
  table->set_dim(dim);
  for (const std::string& feature : features) table->add_features(feature);
  return table;
}

std::string refusal(const v1::Training& training) {
  const auto tables = tableLookups(training, threeColumns());
  return tables.ok() ? "accepted" : std::string(tables.status().message());
}

TEST(TableLookups, AreTheJobsTablesOverColumns) {
  v1::Training training;
  addTable(training, "people", 16, {"friends", "user"})->set_combiner("Sum");
  addTable(training, "things", 8, {"item"})->set_combiner("SqrtN");
  addTable(training, "wide", 1, {"user", "item", "friends"});
  const auto tables = tableLookups(training, threeColumns());
  ASSERT_TRUE(tables.ok()) << tables.status();
  ASSERT_EQ(tables->size(), 3u);
  EXPECT_EQ((*tables)[0].name, "people");
  EXPECT_EQ((*tables)[0].dim, 16u);
  EXPECT_EQ((*tables)[0].combiner, Combiner::kSum);
  EXPECT_THAT((*tables)[0].features, ElementsAre(2, 0));
  EXPECT_EQ((*tables)[1].combiner, Combiner::kSqrtN);
  EXPECT_THAT((*tables)[1].features, ElementsAre(1));
  EXPECT_EQ((*tables)[2].combiner, Combiner::kMean);
  EXPECT_THAT((*tables)[2].features, ElementsAre(0, 1, 2));
  EXPECT_TRUE(tableLookups(v1::Training(), threeColumns())->empty());
}

TEST(TableLookups, ErrorsNameTheField) {
  v1::Training unknown;
  addTable(unknown, "people", 16, {"user"});
  addTable(unknown, "things", 16, {"item", "age"});
  EXPECT_EQ(refusal(unknown),
            "training.tables[1].features[1]: \"age\" is no column of ids, expected one of: user, "
            "item, friends");
  v1::Training twice;
  addTable(twice, "people", 16, {"user", "friends", "user"});
  EXPECT_EQ(refusal(twice), "training.tables[0].features[2]: \"user\" is there before");
  v1::Training flat;
  addTable(flat, "people", 0, {"user"});
  EXPECT_EQ(refusal(flat), "training.tables[0].dim: 0, expected 1 or more");
  v1::Training odd;
  addTable(odd, "people", 2, {"user"})->set_combiner("Max");
  EXPECT_THAT(refusal(odd), HasSubstr("combiner: \"Max\", expected Sum, Mean or SqrtN"));
}

TEST(Occurrences, AreByFeatureAndThenBySample) {
  const std::vector<FeatureIds> features = {
      {.ids = {10, 11, 12}, .ends = {1, 2, 3}},
      {.ids = {20, 20, 21}, .ends = {1, 2, 3}},
      {.ids = {10, 30, 31, 32}, .ends = {0, 3, 4}},
  };
  const std::vector<TableLookup> tables = {
      {.name = "people", .dim = 2, .combiner = Combiner::kMean, .features = {2, 0}},
      {.name = "things", .dim = 2, .combiner = Combiner::kMean, .features = {1}},
      {.name = "none", .dim = 2, .combiner = Combiner::kMean, .features = {}},
  };
  EXPECT_THAT(occurrencesOf(tables, features), ElementsAre(ElementsAre(10, 30, 31, 32, 10, 11, 12),
                                                           ElementsAre(20, 20, 21), ElementsAre()));
}

// Three samples: two rows, none, three rows.
const FeatureIds kBags = {.ids = {1, 2, 3, 1, 4}, .ends = {2, 2, 5}};
constexpr std::size_t kDim = 2;
constexpr std::size_t kStride = 5;  // of what is combined, from column 1 on

std::vector<float> combinedBy(Combiner combiner, const std::vector<float>& rows) {
  std::vector<float> out(3 * kStride, -7.0f);
  combineRows(combiner, kBags, rows, kDim, out.data() + 1, kStride);
  return out;
}

TEST(CombineRows, MakesTheSumOrAShareOfIt) {
  const std::vector<float> rows = {1, 2, 3, 4, 1, 10, 2, 20, 6, 33};
  constexpr float kKept = -7;  // of other columns
  EXPECT_THAT(combinedBy(Combiner::kSum, rows),
              ElementsAre(kKept, 4, 6, kKept, kKept, kKept, 0, 0, kKept, kKept, kKept, 9, 63, kKept,
                          kKept));
  EXPECT_THAT(combinedBy(Combiner::kMean, rows),
              ElementsAre(kKept, 2, 3, kKept, kKept, kKept, 0, 0, kKept, kKept, kKept, 3, 21, kKept,
                          kKept));
  const float two = std::sqrt(2.0f);
  const float three = std::sqrt(3.0f);
  EXPECT_THAT(combinedBy(Combiner::kSqrtN, rows),
              ElementsAre(kKept, 4 / two, 6 / two, kKept, kKept, kKept, 0, 0, kKept, kKept, kKept,
                          9 / three, 63 / three, kKept, kKept));
}

TEST(CombineRows, OneRowIsItself) {
  const FeatureIds one = {.ids = {5}, .ends = {1}};
  const std::vector<float> row = {0.1f, -0.3f};
  for (const Combiner combiner : {Combiner::kSum, Combiner::kMean, Combiner::kSqrtN}) {
    std::vector<float> out(kDim);
    combineRows(combiner, one, row, kDim, out.data(), kDim);
    EXPECT_EQ(out, row);
    std::vector<float> gradient(kDim);
    spreadGradient(combiner, one, row.data(), kDim, kDim, gradient);
    EXPECT_EQ(gradient, row);
  }
}

TEST(CombineRows, NoSamplesAndNoRows) {
  combineRows(Combiner::kMean, {}, {}, kDim, nullptr, kStride);
  spreadGradient(Combiner::kMean, {}, nullptr, kStride, kDim, {});
  const FeatureIds empty = {.ids = {}, .ends = {0, 0}};
  std::vector<float> out(2 * kDim, 1.0f);
  combineRows(Combiner::kMean, empty, {}, kDim, out.data(), kDim);
  EXPECT_THAT(out, testing::Each(0.0f));
}

// A function of what is combined, whose gradient there is its coefficients.
double measured(Combiner combiner, const std::vector<float>& rows,
                const std::vector<float>& coefficients) {
  const std::vector<float> combined = combinedBy(combiner, rows);
  double sum = 0;
  for (std::size_t sample = 0; sample < 3; ++sample) {
    for (std::size_t d = 0; d < kDim; ++d) {
      const std::size_t at = sample * kStride + 1 + d;
      sum += double{coefficients[at]} * combined[at];
    }
  }
  return sum;
}

TEST(SpreadGradient, IsThatOfFiniteDifferences) {
  Rng rng(7);
  std::vector<float> rows(kBags.ids.size() * kDim);
  for (float& x : rows) x = static_cast<float>(rng.unit());
  std::vector<float> coefficients(3 * kStride);
  for (float& x : coefficients) x = static_cast<float>(rng.unit() - 0.5);
  for (const Combiner combiner : {Combiner::kSum, Combiner::kMean, Combiner::kSqrtN}) {
    std::vector<float> gradient(rows.size(), -7.0f);
    spreadGradient(combiner, kBags, coefficients.data() + 1, kStride, kDim, gradient);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::vector<float> more = rows;
      std::vector<float> less = rows;
      more[i] += 0.25f;
      less[i] -= 0.25f;
      const double slope =
          (measured(combiner, more, coefficients) - measured(combiner, less, coefficients)) / 0.5;
      EXPECT_NEAR(gradient[i], slope, 1e-5) << "element " << i;
    }
  }
}

}  // namespace
}  // namespace trainyard::runtime
