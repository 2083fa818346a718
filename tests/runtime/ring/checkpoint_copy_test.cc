// How many copies of the state are there for checkpoints.
#include <atomic>
#include <thread>

#include "gtest/gtest.h"
#include "tests/runtime/ring/ring_views.h"

namespace trainyard::runtime::ring {
namespace {

constexpr std::size_t kWeights = 4;

// Counts who asks: a rank that waits does, after each look at what it is to do.
class CountingClock final : public Clock {
 public:
  TimePoint now() const override {
    ++asked;
    return systemClock().now();
  }
  UnixMillis unixMillis() const override { return systemClock().unixMillis(); }
  mutable std::atomic<int> asked = 0;
};

class CheckpointCopyTest : public ::testing::Test {
 protected:
  CheckpointCopyTest() {
    v1::OptimizerSpec spec;
    spec.set_name("SGD");
    spec.set_learning_rate(1);
    optimizer_ = *makeOptimizer(spec);
    v1::PlacementSpec all;
    all.set_strategy("Balanced");
    Variable variable;
    variable.name = "w";
    variable.shape = {static_cast<std::int64_t>(kWeights)};
    placement_ = *place(all, {variable}, 1);
    RingSynchronizerOptions options;
    options.worker.evaluates = false;
    options.exchange.token = "token";
    options.load = [this](const v1::EpochInfo&, const LoadChunk& load) {
      const std::vector<float> ones(kWeights, 1.0F);
      for (std::uint32_t c = 0; c < placement_.chunks.size(); ++c) load(c, 0, ones, {});
      return absl::OkStatus();
    };
    options.beside = [this](std::int64_t version) -> StatusOr<std::function<Status()>> {
      copied_ = version;
      return [] { return absl::OkStatus(); };
    };
    options.write = [this](const Snapshot& snapshot) {
      EXPECT_TRUE(news_.await([&] { return disk_goes_on_.load(); }));
      v1::ShardFile file;
      file.set_epoch(snapshot.epoch);
      file.set_version(snapshot.version);
      return file;
    };
    synchronizer_ = std::make_unique<RingSynchronizer>(
        options, placement_, std::vector<std::span<float>>{weights_}, *optimizer_,
        LearningRate(spec), clock_, [this] { news_.tell(); });
  }

  // One step, then nothing is left to do.
  void train() {
    const StatusOr<Turn> turn = synchronizer_->next();
    ASSERT_TRUE(turn.ok()) << turn.status();
    auto sum = std::make_shared<std::vector<float>>(kWeights, 1.0F);
    synchronizer_->push({0, *sum, sum});
    ASSERT_TRUE(synchronizer_->finish({2.0, turn->samples}).ok());
    trained_ = true;
    EXPECT_FALSE(synchronizer_->next().ok()) << "the end of the test";
  }
  bool looksTwice() {
    const int before = clock_.asked;
    return news_.await([&] { return clock_.asked >= before + 2; });
  }
  int written() const {
    v1::MemberReport report;
    synchronizer_->fillReport(report);
    return report.written_size();
  }

  News news_;
  CountingClock clock_;
  RingViews views_;
  std::unique_ptr<Optimizer> optimizer_;
  Placement placement_;
  std::vector<float> weights_ = std::vector<float>(kWeights);
  std::atomic<std::int64_t> copied_ = -1;
  std::atomic<bool> disk_goes_on_ = false, trained_ = false;
  std::unique_ptr<RingSynchronizer> synchronizer_;
};

// A job's last version comes while the file before it is being written: the memory of two copies
// is what nobody has counted.
TEST_F(CheckpointCopyTest, TheLastIsMadeOnceTheOneBeforeIsWritten) {
  ASSERT_TRUE(synchronizer_->open().ok());
  views_.add(*synchronizer_);
  views_.setSteps(1);
  views_.prepare(1, 1);
  std::thread trainer([this] { train(); });
  EXPECT_TRUE(news_.await([&] { return views_.prepared(); }));
  views_.show(v1::PHASE_ACTIVE);
  EXPECT_TRUE(news_.await([&] { return trained_.load(); }));
  EXPECT_TRUE(looksTwice());
  EXPECT_EQ(copied_, 0) << "the first version's copy is on its way to the disk";
  disk_goes_on_ = true;
  EXPECT_TRUE(news_.await([&] { return written() == 2; }));
  EXPECT_EQ(copied_, 1);
  views_.fail("the end of the test");
  trainer.join();
}

}  // namespace
}  // namespace trainyard::runtime::ring
