#include "runtime/data/internal/synthetic_ctr.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/data/internal/zipf.h"

namespace trainyard::runtime {
namespace {

using internal::SyntheticCtr;
using testing::StartsWith;

void addColumn(v1::DataSpec& spec, const std::string& name, const std::string& kind,
               std::int64_t ids = 0) {
  v1::ColumnSpec* const column = spec.add_columns();
  column->set_name(name);
  column->set_kind(kind);
  if (ids != 0) column->set_ids(ids);
}

// `features` columns of so many ids, as many numbers, and the label between them.
v1::DataSpec clickSpec(int features, std::int64_t ids, int numbers, std::int64_t samples,
                       std::int64_t eval_samples = 0) {
  v1::DataSpec spec;
  spec.set_format("synthetic_ctr");
  for (int i = 0; i < features; ++i) addColumn(spec, fmt::format("c{}", i), "Id", ids);
  addColumn(spec, "click", "Label");
  for (int i = 0; i < numbers; ++i) addColumn(spec, fmt::format("n{}", i), "Number");
  spec.set_samples(samples);
  spec.set_eval_samples(eval_samples);
  return spec;
}

std::unique_ptr<SyntheticCtr> trainingClicks(const v1::DataSpec& spec) {
  auto part = internal::readSyntheticCtrSpec(spec);
  EXPECT_TRUE(part.ok()) << part.status();
  return internal::makeSyntheticCtr(*std::move(part));
}

Batch wholeOf(const Dataset& data) {
  std::vector<std::int64_t> all(data.size());
  std::iota(all.begin(), all.end(), 0);
  Batch batch;
  data.read(all, all, batch);
  return batch;
}

// The area under the ROC curve by ranks (Mann and Whitney, 1947); equal ones are in the order of
// their numbers, which knows nothing of labels.
double areaUnderCurve(const std::vector<double>& logits, const std::vector<std::int64_t>& labels) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(logits[a], a) < std::pair(logits[b], b);
  });
  double rank_sum = 0;
  double positives = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (labels[order[i]] == 0) continue;
    rank_sum += static_cast<double>(i + 1);
    ++positives;
  }
  const double negatives = static_cast<double>(order.size()) - positives;
  return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives);
}

struct Measured {
  double positives;
  double mean_logit;
  double deviation;
  double auc;
};

Measured measure(const v1::DataSpec& spec) {
  const auto data = trainingClicks(spec);
  const Batch batch = wholeOf(*data);
  std::vector<double> logits(data->size());
  for (std::int64_t i = 0; i < data->size(); ++i) logits[i] = data->oracleLogit(i);
  const auto n = static_cast<double>(data->size());
  const double mean = std::accumulate(logits.begin(), logits.end(), 0.0) / n;
  double squares = 0;
  for (const double logit : logits) squares += (logit - mean) * (logit - mean);
  const auto positives = std::accumulate(batch.labels.begin(), batch.labels.end(), std::int64_t{0});
  return {.positives = static_cast<double>(positives) / n,
          .mean_logit = mean,
          .deviation = std::sqrt(squares / n),
          .auc = areaUnderCurve(logits, batch.labels)};
}

TEST(SyntheticCtr, AboutAQuarterIsPositiveAndTheOracleKnowsMuch) {
  for (const v1::DataSpec& spec :
       {clickSpec(4, 10'000, 3, 40'000), clickSpec(8, 100'000, 0, 40'000),
        clickSpec(26, 384'615, 13, 20'000), clickSpec(2, 100'000, 2, 40'000),
        clickSpec(3, 50, 0, 40'000), clickSpec(0, 0, 4, 40'000)}) {
    const Measured m = measure(spec);
    const std::string what =
        fmt::format("{} columns: {:.3f} positive, logit {:.3f} +- {:.3f}, AUC {:.4f}",
                    spec.columns_size(), m.positives, m.mean_logit, m.deviation, m.auc);
    EXPECT_NEAR(m.mean_logit, -1.5, 0.05) << what;
    EXPECT_NEAR(m.deviation, 1.3, 0.05) << what;
    EXPECT_NEAR(m.positives, 0.24, 0.015) << what;
    EXPECT_NEAR(m.auc, 0.79, 0.015) << what;
  }
}

v1::DataSpec drifting(v1::DataSpec spec, double drift) {
  spec.set_order("Sequential");
  spec.set_drift(drift);
  return spec;
}

// Of 200 ids, each of which occurs in every life; and what they are learnt from is the same.
TEST(SyntheticCtr, DriftReplacesIdsAndNothingElse) {
  constexpr std::int64_t kSamples = 100'000;
  const v1::DataSpec still = clickSpec(1, 200, 1, kSamples);
  const Batch fixed = wholeOf(*trainingClicks(still));
  EXPECT_EQ(trainingClicks(drifting(still, 0))->fingerprint(),
            trainingClicks(still)->fingerprint());
  for (const double drift : {0.25, 1.0, 8.0}) {
    const auto data = trainingClicks(drifting(still, drift));
    EXPECT_NE(data->fingerprint(), trainingClicks(still)->fingerprint());
    const Batch batch = wholeOf(*data);
    EXPECT_EQ(batch.labels, fixed.labels);
    EXPECT_EQ(batch.numbers, fixed.numbers);
    const std::vector<std::uint64_t>& ids = batch.features[0].ids;
    const std::set<std::uint64_t> all(ids.begin(), ids.end());
    // 200 at the beginning, and `drift` times as many after them.
    EXPECT_NEAR(static_cast<double>(all.size()), 200 * (1 + drift), 200 * drift * 0.25 + 5)
        << drift;
    std::map<std::uint64_t, std::uint64_t> now;  // the id that is there, by what it was at first
    std::int64_t changes = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto [place, fresh] = now.emplace(fixed.features[0].ids[i], ids[i]);
      if (fresh || place->second == ids[i]) continue;
      place->second = ids[i];
      ++changes;
    }
    EXPECT_EQ(all.size(), now.size() + static_cast<std::size_t>(changes)) << "no id comes back";
  }
}

TEST(SyntheticCtr, LabelsAreAsLikelyAsTheOracleSays) {
  const auto data = trainingClicks(clickSpec(4, 1000, 2, 40'000));
  const Batch batch = wholeOf(*data);
  // Of ten equal parts of the probabilities, each within five deviations.
  std::array<double, 10> expected{};
  std::array<double, 10> variance{};
  std::array<double, 10> found{};
  for (std::int64_t i = 0; i < data->size(); ++i) {
    const double p = 1 / (1 + std::exp(-data->oracleLogit(i)));
    const auto part = static_cast<std::size_t>(p * 10);
    expected[part] += p;
    variance[part] += p * (1 - p);
    found[part] += static_cast<double>(batch.labels[i]);
  }
  for (std::size_t part = 0; part < 10; ++part) {
    EXPECT_NEAR(found[part], expected[part], 5 * std::sqrt(variance[part]) + 1) << part;
  }
}

TEST(SyntheticCtr, ASampleDependsOnItsNumberAlone) {
  const v1::DataSpec spec = clickSpec(3, 500, 2, 60, 40);
  const auto splits = openData(spec);
  ASSERT_TRUE(splits.ok()) << splits.status();
  const Batch all = wholeOf(*trainingClicks(clickSpec(3, 500, 2, 100)));
  const Batch eval = wholeOf(*splits->eval);
  ASSERT_EQ(eval.size(), 40);
  EXPECT_TRUE(std::equal(eval.labels.begin(), eval.labels.end(), all.labels.begin() + 60));
  EXPECT_TRUE(std::equal(eval.numbers.begin(), eval.numbers.end(), all.numbers.begin() + 120));
  for (int f = 0; f < 3; ++f) {
    EXPECT_TRUE(std::equal(eval.features[f].ids.begin(), eval.features[f].ids.end(),
                           all.features[f].ids.begin() + 60));
  }
  // In any order, and with memory that has held others.
  Batch batch = all;
  const std::vector<std::int64_t> samples = {59, 3, 3, 0};
  const std::vector<std::int64_t> keys = {1, 2, 3, 4};
  splits->train->read(samples, keys, batch);
  EXPECT_EQ(batch.keys, keys);
  EXPECT_EQ(batch.shape, (std::array<int, 3>{1, 1, 2}));
  EXPECT_TRUE(batch.images.empty());
  ASSERT_EQ(batch.numbers.size(), 8u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(batch.labels[i], all.labels[samples[i]]);
    EXPECT_EQ(batch.numbers[2 * i], all.numbers[2 * samples[i]]);
    EXPECT_EQ(batch.numbers[2 * i + 1], all.numbers[2 * samples[i] + 1]);
    for (int f = 0; f < 3; ++f) {
      EXPECT_EQ(batch.features[f].ids[i], all.features[f].ids[samples[i]]);
      EXPECT_EQ(batch.features[f].ends[i], i + 1);
    }
  }
  std::vector<FeatureIds> features = all.features;
  splits->train->readFeatures(samples, features);
  ASSERT_EQ(features.size(), 3u);
  for (int f = 0; f < 3; ++f) {
    EXPECT_EQ(features[f].ids, batch.features[f].ids);
    EXPECT_EQ(features[f].ends, batch.features[f].ends);
  }
}

// Values that must never change: what a job has learnt from them is compared over time.
TEST(SyntheticCtr, GoldenSamples) {
  const auto data = trainingClicks(clickSpec(2, 1'000'000, 1, 5));
  const Batch batch = wholeOf(*data);
  EXPECT_THAT(
      batch.features[0].ids,
      testing::ElementsAre(14143284181766209801u, 17996112468330767139u, 7219605756930398037u,
                           2635028385886672148u, 11921619462340296807u));
  EXPECT_THAT(
      batch.features[1].ids,
      testing::ElementsAre(12374780431415466773u, 5687339006687539632u, 13978732065041841567u,
                           7082877158787205583u, 16351574978913135461u));
  EXPECT_THAT(batch.numbers, testing::ElementsAre(0.0465734005f, -0.954934359f, 0.472878098f,
                                                  0.0477119684f, -0.659196854f));
  EXPECT_THAT(batch.labels, testing::ElementsAre(0, 0, 0, 0, 1));
  EXPECT_NEAR(data->oracleLogit(0), -2.4693770981681, 1e-9);
  EXPECT_NEAR(data->oracleLogit(4), -0.28347061246289, 1e-9);
  EXPECT_EQ(data->fingerprint(),
            "dc11de53996d726b4e5aa6f2d999842fc9bc0f624f474b9576c092653455d0fd");
}

TEST(SyntheticCtr, ColumnsShapeAndClasses) {
  const auto splits = openData(clickSpec(2, 100, 3, 10));
  ASSERT_TRUE(splits.ok()) << splits.status();
  const Dataset& data = *splits->train;
  EXPECT_EQ(splits->eval, nullptr);
  EXPECT_THAT(data.columns().features, testing::ElementsAre("c0", "c1"));
  EXPECT_THAT(data.columns().numbers, testing::ElementsAre("n0", "n1", "n2"));
  EXPECT_EQ(data.shape(), (std::array<int, 3>{1, 1, 3}));
  EXPECT_EQ(data.classes(), 2);
  EXPECT_EQ(data.size(), 10);
  // Either kind of column will do alone.
  EXPECT_EQ(wholeOf(*trainingClicks(clickSpec(0, 0, 1, 10))).numbers.size(), 10u);
  EXPECT_EQ(wholeOf(*trainingClicks(clickSpec(1, 5, 0, 10))).features[0].ids.size(), 10u);
}

TEST(SyntheticCtr, TheFirstIdsAreAsFrequentAsZipfSays) {
  constexpr std::int64_t kIds = 100'000;
  constexpr std::int64_t kSamples = 200'000;
  const auto data = trainingClicks(clickSpec(1, kIds, 0, kSamples));
  const Batch batch = wholeOf(*data);
  std::unordered_map<std::uint64_t, int> counts;
  for (const std::uint64_t id : batch.features[0].ids) ++counts[id];
  std::vector<int> sorted;
  for (const auto& [id, count] : counts) sorted.push_back(count);
  std::sort(sorted.rbegin(), sorted.rend());
  double total = 0;
  for (std::int64_t k = 1; k <= kIds; ++k) total += std::pow(k, -internal::Zipf::kExponent);
  EXPECT_NEAR(internal::Zipf(kIds).probability(7) * total, std::pow(7, -1.05), 1e-8);
  double head = 0;
  for (std::size_t k = 0; k < 10; ++k) {
    const double expected = kSamples * std::pow(k + 1, -internal::Zipf::kExponent) / total;
    EXPECT_NEAR(sorted[k], expected, 5 * std::sqrt(expected)) << "rank " << k + 1;
    head += expected;
  }
  const int found = std::accumulate(sorted.begin(), sorted.begin() + 10, 0);
  EXPECT_NEAR(found, head, 5 * std::sqrt(head));
  // All 64 bits are used: the sum of all upper halves is as of uniform ones.
  double upper = 0;
  for (const auto& [id, count] : counts) upper += static_cast<double>(id >> 32) * 0x1p-32;
  EXPECT_NEAR(upper / static_cast<double>(counts.size()), 0.5, 0.02);
}

TEST(Zipf, RanksStayInTheirRange) {
  for (const std::int64_t ranks : {std::int64_t{1}, std::int64_t{2}, std::int64_t{3},
                                   std::int64_t{1000}, internal::Zipf::kMaxRanks}) {
    const internal::Zipf zipf(ranks);
    std::int64_t largest = 0;
    for (std::uint64_t i = 0; i < 20'000; ++i) {
      const std::int64_t rank = zipf.draw(3, i);
      ASSERT_GE(rank, 1);
      ASSERT_LE(rank, ranks);
      largest = std::max(largest, rank);
    }
    EXPECT_GE(largest, std::min<std::int64_t>(ranks, 900));
  }
}

// Each of few ranks, against its probability.
TEST(Zipf, SmallRangesHaveTheRightShares) {
  constexpr int kRanks = 7;
  constexpr int kDraws = 100'000;
  const internal::Zipf zipf(kRanks);
  std::array<int, kRanks + 1> counts{};
  for (std::uint64_t i = 0; i < kDraws; ++i) ++counts[zipf.draw(5, i)];
  double total = 0;
  for (int k = 1; k <= kRanks; ++k) total += std::pow(k, -internal::Zipf::kExponent);
  for (int k = 1; k <= kRanks; ++k) {
    const double expected = kDraws * std::pow(k, -internal::Zipf::kExponent) / total;
    EXPECT_NEAR(counts[k], expected, 5 * std::sqrt(expected)) << "rank " << k;
  }
}

TEST(SyntheticCtr, FingerprintSeesEveryParameter) {
  std::set<std::string> seen;
  v1::DataSpec renamed = clickSpec(2, 100, 1, 10);
  renamed.mutable_columns(0)->set_name("other");
  for (const auto& spec :
       {clickSpec(2, 100, 1, 10), clickSpec(3, 100, 1, 10), clickSpec(2, 101, 1, 10),
        clickSpec(2, 100, 2, 10), clickSpec(2, 100, 1, 11), renamed}) {
    seen.insert(trainingClicks(spec)->fingerprint());
  }
  EXPECT_EQ(seen.size(), 6u);
  const auto splits = openData(clickSpec(2, 100, 1, 10, 10));
  EXPECT_EQ(splits->train->fingerprint(), trainingClicks(clickSpec(2, 100, 1, 10))->fingerprint());
  EXPECT_NE(splits->train->fingerprint(), splits->eval->fingerprint());
}

TEST(SyntheticCtr, ErrorsNameTheField) {
  const auto changed = [](auto change) {
    v1::DataSpec spec = clickSpec(2, 100, 1, 10);
    change(spec);
    return spec;
  };
  const std::vector<std::pair<v1::DataSpec, std::string>> cases = {
      {changed([](v1::DataSpec& s) { s.mutable_columns(1)->set_kind("Ids"); }),
       "training.data.columns[1].kind: \"Ids\", expected Id, Number or Label"},
      {changed([](v1::DataSpec& s) { s.mutable_columns(1)->set_kind("Text"); }),
       "training.data.columns[1].kind: \"Text\", expected Id, Number or Label"},
      {changed([](v1::DataSpec& s) { s.mutable_columns(1)->set_kind("Weight"); }),
       "training.data.columns[1].kind: \"Weight\", expected Id, Number or Label"},
      {changed([](v1::DataSpec& s) { s.mutable_columns(1)->set_kind("id"); }),
       "training.data.columns[1].kind: \"id\", expected Id, Ids, Number, Text, Label or Weight"},
      {changed([](v1::DataSpec& s) { s.mutable_columns(1)->clear_ids(); }),
       "training.data.columns[1].ids: 0, expected 1 to 1000000000000"},
      {changed([](v1::DataSpec& s) { s.mutable_columns(1)->clear_name(); }),
       "training.data.columns[1].name: missing, expected a name"},
      {changed([](v1::DataSpec& s) { s.mutable_columns(1)->set_name("c0"); }),
       "training.data.columns[1].name: \"c0\" is there before"},
      {changed([](v1::DataSpec& s) { s.mutable_columns(2)->set_kind("Number"); }),
       "training.data.columns: 0 columns of kind Label, expected one"},
      {changed([](v1::DataSpec& s) { s.mutable_columns(3)->set_kind("Label"); }),
       "training.data.columns: 2 columns of kind Label, expected one"},
      {changed([](v1::DataSpec& s) { s.clear_columns(); }),
       "training.data.columns: 0 columns of kind Label, expected one"},
      {clickSpec(0, 0, 0, 10), "training.data.columns: the label alone, expected columns of kind"},
      {clickSpec(1, 9, 0, 0), "training.data.samples: 0, expected 1 to 100000000"},
      {clickSpec(1, 9, 0, 100'000'001),
       "training.data.samples: 100000001, expected at most 100000000 in order Shuffled; Blocks and "
       "Sequential take more"},
      {changed([](v1::DataSpec& s) { s.set_drift(0.5); }),
       "training.data.drift: only with order Sequential"},
      {changed([](v1::DataSpec& s) {
         s.set_order("Sequential");
         s.set_drift(1001);
       }),
       "training.data.drift: 1001, expected 0 to 1000"},
      {clickSpec(1, 9, 0, 5, -1), "training.data.evalSamples: -1, expected 0 to 100000000"},
  };
  for (const auto& [data, message] : cases) {
    const auto splits = openData(data);
    ASSERT_FALSE(splits.ok()) << message;
    EXPECT_TRUE(absl::IsInvalidArgument(splits.status()));
    EXPECT_THAT(std::string(splits.status().message()), StartsWith(message));
  }
}

}  // namespace
}  // namespace trainyard::runtime
