#include <algorithm>
#include <numeric>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/data/dataset.h"

namespace trainyard::runtime {
namespace {

v1::DataSpec spec(std::vector<int> shape = {28, 28, 1}, int classes = 10,
                  std::int64_t samples = 600, std::int64_t eval_samples = 200) {
  v1::DataSpec out;
  out.set_format("synthetic");
  for (const int side : shape) out.add_shape(side);
  out.set_classes(classes);
  out.set_samples(samples);
  out.set_eval_samples(eval_samples);
  return out;
}

DataSplits open(const v1::DataSpec& data) {
  auto splits = openData(data);
  EXPECT_TRUE(splits.ok()) << splits.status();
  return splits.ok() ? std::move(*splits) : DataSplits{};
}

Batch readAll(const Dataset& data) {
  std::vector<std::int64_t> all(data.size());
  std::iota(all.begin(), all.end(), 0);
  Batch batch;
  data.read(all, all, batch);
  return batch;
}

TEST(SyntheticData, APictureDependsOnItsNumberAlone) {
  const DataSplits data = open(spec({9, 7, 3}, 4, 50, 10));
  const Batch all = readAll(*data.train);
  EXPECT_EQ(all.shape, (std::array<int, 3>{9, 7, 3}));
  const DataSplits other = open(spec({9, 7, 3}, 4, 30, 20));
  const std::vector<std::int64_t> samples = {29, 3, 3};
  Batch batch;
  other.train->read(samples, samples, batch);
  constexpr std::int64_t kImage = 9 * 7 * 3;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(batch.labels[i], all.labels[samples[i]]);
    EXPECT_TRUE(std::equal(batch.images.begin() + i * kImage,
                           batch.images.begin() + (i + 1) * kImage,
                           all.images.begin() + samples[i] * kImage));
  }
  // Evaluation goes on where training ends: other.eval's samples are data.train's 30..49.
  const Batch eval = readAll(*other.eval);
  EXPECT_TRUE(std::equal(eval.images.begin(), eval.images.end(), all.images.begin() + 30 * kImage));
  EXPECT_TRUE(
      std::all_of(all.images.begin(), all.images.end(), [](float x) { return x >= 0 && x <= 1; }));
}

TEST(SyntheticData, PicturesOfOneClassDiffer) {
  const Batch all = readAll(*open(spec({8, 8, 1}, 2, 100)).train);
  std::set<std::vector<float>> distinct;
  for (int i = 0; i < 100; ++i) {
    distinct.insert({all.images.begin() + i * 64, all.images.begin() + (i + 1) * 64});
  }
  EXPECT_EQ(distinct.size(), 100u);
}

// The nearest class mean of the training samples names nearly every evaluation sample.
TEST(SyntheticData, AModelCanLearnIt) {
  const DataSplits data = open(spec());
  const Batch train = readAll(*data.train);
  const Batch eval = readAll(*data.eval);
  constexpr int kImage = 784;
  std::vector<std::vector<double>> means(10, std::vector<double>(kImage));
  for (int i = 0; i < train.size(); ++i) {
    for (int p = 0; p < kImage; ++p) {
      means[train.labels[i]][p] += train.images[i * kImage + p] / 60.0;
    }
  }
  int hits = 0;
  for (int i = 0; i < eval.size(); ++i) {
    std::vector<double> distance(10);
    for (int c = 0; c < 10; ++c) {
      for (int p = 0; p < kImage; ++p) {
        const double d = means[c][p] - eval.images[i * kImage + p];
        distance[c] += d * d;
      }
    }
    const auto nearest = std::min_element(distance.begin(), distance.end()) - distance.begin();
    hits += nearest == eval.labels[i] ? 1 : 0;
  }
  EXPECT_GE(hits, 195);
}

TEST(SyntheticData, FingerprintSeesEveryParameter) {
  std::set<std::string> seen;
  for (const auto& data :
       {spec(), spec({28, 14, 2}), spec({28, 28, 1}, 11), spec({28, 28, 1}, 10, 601)}) {
    seen.insert(open(data).train->fingerprint());
  }
  EXPECT_EQ(seen.size(), 4u);
  EXPECT_EQ(open(spec()).train->fingerprint(), open(spec()).train->fingerprint());
  EXPECT_NE(open(spec()).train->fingerprint(), open(spec()).eval->fingerprint());
}

TEST(SyntheticData, WithoutEvaluationSamples) {
  EXPECT_EQ(open(spec({4, 4, 1}, 2, 5, 0)).eval, nullptr);
}

TEST(SyntheticData, ErrorsNameTheField) {
  const std::vector<std::pair<v1::DataSpec, std::string>> cases = {
      {spec({28, 28}), "training.data.shape: 2 numbers, expected 3: height, width, channels"},
      {spec({28, 0, 1}), "training.data.shape: 0, expected 1 to 65536"},
      {spec({8192, 8192, 3}),
       "training.data.shape: 201326592 numbers per image, expected at most 16777216"},
      {spec({28, 28, 1}, 1), "training.data.classes: 1, expected 2 to 65536"},
      {spec({1024, 1024, 4}, 60000),
       "training.data.classes: 60000, expected at most 1024 for images"},
      {spec({28, 28, 1}, 10, 0), "training.data.samples: 0, expected 1 to 100000000"},
      {spec({28, 28, 1}, 10, 5, -1), "training.data.evalSamples: -1, expected 0 to 100000000"},
  };
  for (const auto& [data, message] : cases) {
    const auto splits = openData(data);
    ASSERT_FALSE(splits.ok()) << message;
    EXPECT_THAT(std::string(splits.status().message()), testing::StartsWith(message));
  }
}

}  // namespace
}  // namespace trainyard::runtime
