#include "runtime/compute/read_ahead.h"

#include <condition_variable>
#include <mutex>
#include <numeric>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard::runtime {
namespace {

constexpr std::uint64_t kStreamSeed = 11;
constexpr std::int64_t kDataSamples = 100;

// Whose samples are told by their labels; each read may have to wait.
class GatedData : public Dataset {
 public:
  std::int64_t size() const override { return kDataSamples; }
  std::array<int, 3> shape() const override { return {1, 1, 1}; }
  int classes() const override { return static_cast<int>(kDataSamples); }
  const std::string& fingerprint() const override { return fingerprint_; }
  void read(std::span<const std::int64_t> samples, std::span<const std::int64_t> keys,
            Batch& out) const override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
    out.labels.assign(samples.begin(), samples.end());
    out.keys.assign(keys.begin(), keys.end());
    firsts_.push_back(keys.front());
    changed_.notify_all();
  }

  void close() { setOpen(false); }
  void open() { setOpen(true); }
  // First positions of the batches, once there are so many.
  std::vector<std::int64_t> firsts(std::size_t count) const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return firsts_.size() >= count; });
    return firsts_;
  }

 private:
  void setOpen(bool open) {
    std::lock_guard lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }

  const std::string fingerprint_ = "gated";
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool open_ = true;
  mutable std::vector<std::int64_t> firsts_;
};

class ReadAheadTest : public testing::Test {
 protected:
  void expectBatch(ReadAhead& ahead, const SampleOrder& order, std::int64_t first, int count,
                   std::int64_t stride) {
    Batch batch;
    ahead.read(first, count, stride, batch);
    std::vector<std::int64_t> samples(count);
    SampleStream(kStreamSeed, kDataSamples, order).lookUp(first, samples);
    EXPECT_EQ(batch.labels, samples) << "at " << first;
    std::vector<std::int64_t> positions(count);
    std::iota(positions.begin(), positions.end(), first);
    EXPECT_EQ(batch.keys, positions);
  }

  GatedData data_;
};

TEST_F(ReadAheadTest, GivesWhatReadingGives) {
  for (const SampleOrder order : {SampleOrder{}, SampleOrder{SampleOrder::Kind::kBlocks, 8},
                                  SampleOrder{SampleOrder::Kind::kSequential, 0}}) {
    for (const int steps : {1, 3}) {
      ReadAhead ahead(data_, kStreamSeed, order, steps);
      for (std::int64_t step = 0; step < 40; ++step)
        expectBatch(ahead, order, step * 20 + 10, 10, 20);
    }
  }
}

TEST_F(ReadAheadTest, StepsThatFollowAreReadBeforeTheyAreAskedFor) {
  ReadAhead ahead(data_, kStreamSeed, {}, 3);
  Batch batch;
  ahead.read(0, 10, 20, batch);
  EXPECT_THAT(data_.firsts(4), testing::ElementsAre(0, 20, 40, 60));
  data_.close();
  ahead.read(20, 10, 20, batch);  // is there
  EXPECT_EQ(batch.keys.front(), 20);
  ahead.read(40, 10, 20, batch);
  ahead.read(60, 10, 20, batch);
  EXPECT_EQ(batch.keys.front(), 60);
  data_.open();
  EXPECT_THAT(data_.firsts(7), testing::ElementsAre(0, 20, 40, 60, 80, 100, 120));
}

// Other workers, another share, a step that is taken again, one that others took.
TEST_F(ReadAheadTest, WhatIsNotAsExpectedIsReadWhenItIsAskedFor) {
  ReadAhead ahead(data_, kStreamSeed, {}, 4);
  expectBatch(ahead, {}, 0, 10, 20);
  expectBatch(ahead, {}, 20, 10, 20);
  expectBatch(ahead, {}, 20, 10, 20);
  expectBatch(ahead, {}, 45, 15, 45);
  expectBatch(ahead, {}, 90, 15, 45);
  expectBatch(ahead, {}, 180, 15, 45);
  expectBatch(ahead, {}, 225, 5, 12);
  expectBatch(ahead, {}, 237, 5, 0);
  expectBatch(ahead, {}, 3, 1, 1);
}

TEST_F(ReadAheadTest, EndsWhileItReads) {
  std::thread opener;
  {
    ReadAhead ahead(data_, kStreamSeed, {}, 8);
    Batch batch;
    ahead.read(0, 10, 10, batch);
    EXPECT_EQ(data_.firsts(9).back(), 80);
    data_.close();
    ahead.read(10, 10, 10, batch);  // is there; the step at 90 waits
    opener = std::thread([this] { data_.open(); });
  }
  opener.join();
}

}  // namespace
}  // namespace trainyard::runtime
