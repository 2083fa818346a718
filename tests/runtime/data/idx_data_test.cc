#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/data/dataset.h"

namespace trainyard::runtime {
namespace {

using testing::HasSubstr;

std::string bigEndian(std::uint32_t x) {
  return {static_cast<char>(x >> 24), static_cast<char>(x >> 16), static_cast<char>(x >> 8),
          static_cast<char>(x)};
}

// `count` images of height x width whose pixels count up, modulo 251.
std::string imageFile(std::uint32_t count, std::uint32_t height = 3, std::uint32_t width = 5) {
  std::string out = bigEndian(0x803) + bigEndian(count) + bigEndian(height) + bigEndian(width);
  for (std::uint32_t i = 0; i < count * height * width; ++i) out += static_cast<char>(i % 251);
  return out;
}

std::string labelFile(const std::vector<int>& labels) {
  std::string out = bigEndian(0x801) + bigEndian(static_cast<std::uint32_t>(labels.size()));
  for (const int label : labels) out += static_cast<char>(label);
  return out;
}

class IdxData : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/idx_data_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
    write("images", imageFile(4));
    write("labels", labelFile({7, 0, 9, 3}));
    write("eval-images", imageFile(2));
    write("eval-labels", labelFile({1, 2}));
    spec_.Clear();
    spec_.set_format("idx");
    spec_.set_images(path("images"));
    spec_.set_labels(path("labels"));
    spec_.set_eval_images(path("eval-images"));
    spec_.set_eval_labels(path("eval-labels"));
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::string path(const std::string& name) const { return dir_ / name; }
  void write(const std::string& name, const std::string& content) {
    std::ofstream(dir_ / name, std::ios::binary) << content;
  }
  void writeGzip(const std::string& name, const std::string& content) {
    const gzFile file = gzopen(path(name).c_str(), "wb");
    gzwrite(file, content.data(), static_cast<unsigned>(content.size()));
    gzclose(file);
  }
  std::string content(const std::string& name) const {
    std::ifstream file(dir_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  DataSplits open() {
    auto splits = openData(spec_);
    EXPECT_TRUE(splits.ok()) << splits.status();
    return splits.ok() ? std::move(*splits) : DataSplits{};
  }
  std::string error() {
    const auto splits = openData(spec_);
    return splits.ok() ? "accepted" : std::string(splits.status().message());
  }

  std::filesystem::path dir_;
  v1::DataSpec spec_;
};

TEST_F(IdxData, ReadsImagesAndLabelsInAnyOrder) {
  const DataSplits data = open();
  ASSERT_NE(data.train, nullptr);
  ASSERT_NE(data.eval, nullptr);
  EXPECT_EQ(data.train->size(), 4);
  EXPECT_EQ(data.eval->size(), 2);
  EXPECT_EQ(data.train->shape(), (std::array<int, 3>{3, 5, 1}));
  EXPECT_EQ(data.train->classes(), 10);
  EXPECT_EQ(data.eval->classes(), 10);
  Batch batch;
  batch.images.assign(1000, -1);
  const std::vector<std::int64_t> samples = {2, 0, 2};
  const std::vector<std::int64_t> keys = {100, 200, 300};
  data.train->read(samples, keys, batch);
  EXPECT_EQ(batch.size(), 3);
  EXPECT_EQ(batch.labels, (std::vector<std::int64_t>{9, 7, 9}));
  EXPECT_EQ(batch.keys, keys);
  EXPECT_EQ(batch.shape, (std::array<int, 3>{3, 5, 1}));
  ASSERT_EQ(batch.images.size(), 45u);
  for (int i = 0; i < 15; ++i) {
    EXPECT_EQ(batch.images[i], static_cast<float>(30 + i) / 255.0f);
    EXPECT_EQ(batch.images[15 + i], static_cast<float>(i) / 255.0f);
    EXPECT_EQ(batch.images[30 + i], batch.images[i]);
  }
}

TEST_F(IdxData, PixelsAreDividedBy255InFloat32) {
  std::string bytes = bigEndian(0x803) + bigEndian(1) + bigEndian(16) + bigEndian(16);
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  write("images", bytes);
  write("labels", labelFile({0}));
  spec_.clear_eval_images();
  spec_.clear_eval_labels();
  const DataSplits data = open();
  EXPECT_EQ(data.eval, nullptr);
  Batch batch;
  const std::vector<std::int64_t> first = {0};
  data.train->read(first, first, batch);
  for (int i = 0; i < 256; ++i) {
    volatile float pixel = static_cast<float>(i);
    EXPECT_EQ(batch.images[i], pixel / 255.0f);
  }
}

TEST_F(IdxData, GzipIsToldByContentAndChangesNothing) {
  const DataSplits plain = open();
  writeGzip("images", imageFile(4));
  writeGzip("eval-labels", labelFile({1, 2}));
  const DataSplits packed = open();
  ASSERT_NE(packed.train, nullptr);
  EXPECT_EQ(packed.train->fingerprint(), plain.train->fingerprint());
  EXPECT_EQ(packed.eval->fingerprint(), plain.eval->fingerprint());
}

TEST_F(IdxData, FingerprintSeesImagesLabelsShapeAndClasses) {
  const std::string before = open().train->fingerprint();
  EXPECT_EQ(before.size(), 64u);
  EXPECT_EQ(open().train->fingerprint(), before);
  EXPECT_NE(open().eval->fingerprint(), before);

  write("labels", labelFile({7, 0, 8, 3}));
  EXPECT_NE(open().train->fingerprint(), before);
  write("labels", labelFile({7, 0, 9, 3}));

  std::string changed = imageFile(4);
  changed.back() ^= 1;
  write("images", changed);
  EXPECT_NE(open().train->fingerprint(), before);
  write("images", imageFile(4, 5, 3));
  write("eval-images", imageFile(2, 5, 3));
  EXPECT_NE(open().train->fingerprint(), before);
  write("images", imageFile(4));
  write("eval-images", imageFile(2));

  spec_.set_classes(11);
  EXPECT_NE(open().train->fingerprint(), before);
}

TEST_F(IdxData, LabelsAboveNineAddClasses) {
  write("labels", labelFile({7, 0, 46, 3}));
  const DataSplits data = open();
  EXPECT_EQ(data.train->classes(), 47);
  EXPECT_EQ(data.eval->classes(), 47);
}

TEST_F(IdxData, ErrorsNameFieldFileAndWhatWasExpected) {
  struct Case {
    std::function<void()> spoil;
    std::string message;
  };
  const auto images = [this](const std::string& bytes) {
    return [this, bytes] { write("images", bytes); };
  };
  const std::string good = imageFile(4);
  const std::vector<Case> cases = {
      {[this] { spec_.set_format("tsv"); },
       "training.data.format: \"tsv\", expected idx, synthetic, csv, criteo, tfrecord or "
       "synthetic_ctr"},
      {[this] { spec_.clear_images(); }, "training.data.images: missing, expected a file's path"},
      {[this] { spec_.clear_labels(); }, "training.data.labels: missing"},
      {[this] { spec_.clear_eval_labels(); },
       "training.data.evalLabels: missing, expected evalImages and"},
      {[this] { spec_.clear_eval_images(); }, "training.data.evalImages: missing"},
      {[this] { std::filesystem::remove(path("images")); }, "/images: cannot open: No such file"},
      {[this] { spec_.set_labels(dir_); }, "no regular file"},
      {[this] {
         std::filesystem::remove(path("images"));
         ASSERT_EQ(::mkfifo(path("images").c_str(), 0600), 0);
       },
       "no regular file"},
      {images(labelFile({1, 2, 3, 4})),
       "/images: magic 0x00000801, expected 0x00000803 (unsigned bytes, 3 dimensions)"},
      {[this] { write("labels", imageFile(4)); },
       "/labels: magic 0x00000803, expected 0x00000801 (unsigned bytes, 1 dimension)"},
      {images(""), "/images: truncated: 0 bytes, expected a header of 16"},
      {images(good.substr(0, 11)), "/images: truncated: 11 bytes, expected a header of 16"},
      {images("no idx file at all"), "/images: magic 0x6e6f2069, expected 0x00000803"},
      {images(good.substr(0, 16 + 59)),
       "/images: truncated: 59 bytes of content, expected 60 (4 images of 3x5)"},
      {images(good.substr(0, 16)), "/images: truncated: 0 bytes of content, expected 60"},
      {images(good + "x"), "/images: bytes after the end: expected 60 bytes of content"},
      {images(imageFile(0)), "/images: dimension 0 has length 0, expected 1 to 100000000"},
      {images(imageFile(4, 0)), "/images: dimension 1 has length 0, expected 1 to 65536"},
      {images(bigEndian(0x803) + bigEndian(100'000'000) + bigEndian(60000) + bigEndian(60000)),
       "/images: 360000000000000000 bytes of content, expected at most 17179869184"},
      // A header that lies: refused at once, without the memory it asks for.
      {images(bigEndian(0x803) + bigEndian(1'000'000) + bigEndian(100) + bigEndian(100)),
       "/images: truncated: 0 bytes of content, expected 10000000000"},
      {images(imageFile(5)), "/labels: 4 labels, expected 5 as in training.data.images: "},
      {[this] {
         write("eval-labels", labelFile({1, 12}));
       },
       "/eval-labels: label 12 of sample 1, expected 0 to 9"},
      {[this] { spec_.set_classes(9); }, "/labels: label 9 of sample 2, expected 0 to 8"},
      {[this] { spec_.set_classes(1); }, "training.data.classes: 1, expected 2 to 65536"},
      {[this] { write("eval-images", imageFile(2, 5, 3)); },
       "/eval-images: images of 5x3, expected 3x5 as in training.data.images"},
      {[this] {
         writeGzip("images", imageFile(4));
         write("images", content("images").substr(0, 40));
       },
       "/images: truncated: the gzip stream has no end"},
      {[this] {
         writeGzip("images", imageFile(4));
         write("images", content("images").substr(0, content("images").size() - 3));
       },
       "/images: truncated: the gzip stream has no end"},
      {[this] {
         writeGzip("images", imageFile(4));
         std::string bytes = content("images");
         bytes[bytes.size() - 7] ^= 0x55;
         write("images", bytes);
       },
       "/images: damaged gzip stream: "},
      {[this] { writeGzip("images", imageFile(4) + "x"); }, "/images: bytes after the end"},
  };
  for (const Case& c : cases) {
    TearDown();
    SetUp();
    c.spoil();
    const std::string message = error();
    EXPECT_THAT(message, HasSubstr(c.message));
    EXPECT_THAT(message, testing::StartsWith("training.data."));
  }
}

TEST(FashionMnist, TheDebianPackage) {
  const std::string dir = "/usr/share/datasets/fashion-mnist/";
  v1::DataSpec spec;
  spec.set_format("idx");
  spec.set_images(dir + "train-images-idx3-ubyte.gz");
  spec.set_labels(dir + "train-labels-idx1-ubyte.gz");
  spec.set_eval_images(dir + "t10k-images-idx3-ubyte.gz");
  spec.set_eval_labels(dir + "t10k-labels-idx1-ubyte.gz");
  if (!std::filesystem::exists(spec.images())) {
    GTEST_SKIP() << "the Debian package dataset-fashion-mnist is not installed";
  }
  const auto data = openData(spec);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->size(), 60000);
  EXPECT_EQ(data->eval->size(), 10000);
  EXPECT_EQ(data->train->shape(), (std::array<int, 3>{28, 28, 1}));
  EXPECT_EQ(data->train->classes(), 10);
  // 1,000 test images of each class, and not all pictures dark.
  std::vector<std::int64_t> all(10000);
  std::iota(all.begin(), all.end(), 0);
  Batch batch;
  data->eval->read(all, all, batch);
  std::array<int, 10> counts{};
  for (const std::int64_t label : batch.labels) ++counts.at(label);
  EXPECT_THAT(counts, testing::Each(1000));
  const double mean = std::accumulate(batch.images.begin(), batch.images.end(), 0.0) /
                      static_cast<double>(batch.images.size());
  EXPECT_NEAR(mean, 0.2868, 0.0005);
}

}  // namespace
}  // namespace trainyard::runtime
