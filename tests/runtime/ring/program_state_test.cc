// What only whoever computes understands, on its way through a group with the weights, and beside
// checkpoints.
#include <algorithm>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/ring/ring_views.h"

namespace trainyard::runtime::ring {
namespace {

using ::testing::HasSubstr;

// Kept as a few bytes; `file` is what lies beside the checkpoint.
class FakeState final : public ProgramState {
 public:
  explicit FakeState(std::size_t bytes, std::byte value) : bytes(bytes, value) {}

  StatusOr<Saved> save(std::int64_t version) override {
    saved.push_back(version);
    if (!failure.ok()) return failure;
    return Saved{.bytes = bytes, .owner = nullptr};
  }
  StatusOr<std::span<std::byte>> room(std::size_t size) override {
    room_.assign(size, std::byte{0});
    return std::span(room_);
  }
  StatusOr<std::span<std::byte>> read(std::int64_t version) override {
    if (!file) return absl::NotFoundError("program-state.step-" + std::to_string(version));
    room_ = *file;
    return std::span(room_);
  }
  Status load(std::int64_t version) override {
    loaded.push_back(version);
    bytes = room_;
    return failure;
  }
  bool initial() const override { return is_initial; }

  std::vector<std::byte> bytes;
  std::optional<std::vector<std::byte>> file;
  bool is_initial = true;
  Status failure;
  std::vector<std::int64_t> saved;
  std::vector<std::int64_t> loaded;

 private:
  std::vector<std::byte> room_;
};

struct StatefulRank {
  StatefulRank(int rank, News& news, FakeState& state, KeepBeside beside) {
    v1::OptimizerSpec spec;
    spec.set_name("SGD");
    spec.set_learning_rate(1);
    optimizer = *makeOptimizer(spec);
    v1::PlacementSpec all;
    all.set_strategy("Balanced");
    Variable variable;
    variable.name = "w";
    variable.shape = {static_cast<std::int64_t>(weights.size())};
    placement = *place(all, {variable}, 1);
    RingSynchronizerOptions options;
    options.worker.index = static_cast<std::uint32_t>(rank);
    options.worker.evaluates = false;
    options.worker.tells_standing = true;
    options.exchange.token = "token";
    options.load = [this](const v1::EpochInfo&, const LoadChunk& load) {
      for (std::uint32_t c = 0; c < placement.chunks.size(); ++c)
        load(c, 0, std::vector<float>(weights.size(), 1.0F), {});
      return absl::OkStatus();
    };
    options.write = [this](const Snapshot& snapshot) {
      v1::ShardFile file;
      file.set_epoch(snapshot.epoch);
      file.set_version(snapshot.version);
      file.set_name("shard");
      written = true;
      return file;
    };
    options.state = &state;
    options.beside = std::move(beside);
    synchronizer = std::make_unique<RingSynchronizer>(
        options, placement, std::vector<std::span<float>>{weights}, *optimizer, LearningRate(spec),
        systemClock(), [&news] { news.tell(); });
  }
  v1::MemberReport report() const {
    v1::MemberReport report;
    synchronizer->fillReport(report);
    return report;
  }

  std::unique_ptr<Optimizer> optimizer;
  Placement placement;
  std::vector<float> weights = std::vector<float>(4);
  std::atomic<bool> written = false;
  std::unique_ptr<RingSynchronizer> synchronizer;
};

class RingStateTest : public ::testing::Test {
 protected:
  ~RingStateTest() override {
    for (std::thread& thread : threads_) thread.join();
  }
  void add(FakeState& state, KeepBeside beside = {}) {
    const int rank = static_cast<int>(ranks_.size());
    ranks_.push_back(std::make_unique<StatefulRank>(rank, news_, state, std::move(beside)));
    ASSERT_TRUE(ranks_.back()->synchronizer->open().ok());
    views_.add(*ranks_.back()->synchronizer);
  }
  // Each rank asks for its first turn. False: not all of them came so far.
  bool start() {
    turns_.assign(ranks_.size(), absl::UnknownError("none yet"));
    views_.prepare(4, 2);
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      threads_.emplace_back([this, r] {
        turns_[r] = ranks_[r]->synchronizer->next().status();
        ++answered_;
        news_.tell();
      });
    }
    if (!news_.await([&] { return views_.prepared() || answered_ > 0; })) return false;
    if (answered_ > 0) return false;
    views_.show(v1::PHASE_ACTIVE);
    return news_.await([&] { return answered_ == static_cast<int>(ranks_.size()); });
  }
  // Ends the waits of those whose group has come to nothing.
  void fail() { views_.fail("the end of the test"); }

  News news_;
  RingViews views_;
  std::vector<std::unique_ptr<StatefulRank>> ranks_;
  std::vector<Status> turns_;
  std::atomic<int> answered_ = 0;
  std::vector<std::thread> threads_;
};

// More than goes at a time, and not a multiple of it.
constexpr std::size_t kLarge = (std::size_t{33} << 20) + 5;

TEST_F(RingStateTest, GoesToWhoeverReceivesTheWeights) {
  FakeState source(kLarge, std::byte{7});
  source.bytes.back() = std::byte{9};
  FakeState second(3, std::byte{1});
  FakeState third(0, std::byte{1});
  add(source);
  add(second);
  add(third);
  ASSERT_TRUE(start());
  for (const Status& turn : turns_) EXPECT_TRUE(turn.ok()) << turn;
  EXPECT_EQ(source.saved, std::vector<std::int64_t>{0});
  EXPECT_TRUE(source.loaded.empty());
  for (const FakeState* receiver : {&second, &third}) {
    EXPECT_EQ(receiver->loaded, std::vector<std::int64_t>{0});
    EXPECT_TRUE(receiver->saved.empty());
    EXPECT_TRUE(receiver->bytes == source.bytes);
  }
}

TEST_F(RingStateTest, AnEmptyOneGoesToo) {
  FakeState source(0, std::byte{0});
  FakeState second(3, std::byte{1});
  add(source);
  add(second);
  ASSERT_TRUE(start());
  EXPECT_EQ(second.loaded, std::vector<std::int64_t>{0});
  EXPECT_TRUE(second.bytes.empty());
}

TEST_F(RingStateTest, WhereNobodyReceivesNobodyIsAsked) {
  FakeState only(3, std::byte{1});
  add(only);
  ASSERT_TRUE(start());
  EXPECT_TRUE(turns_[0].ok());
  EXPECT_TRUE(only.saved.empty());
  EXPECT_TRUE(only.loaded.empty());
}

TEST_F(RingStateTest, FromACheckpointItIsThatOfItsFile) {
  FakeState source(3, std::byte{1});
  source.file.emplace(100, std::byte{8});
  source.is_initial = false;
  FakeState second(3, std::byte{2});
  add(source);
  add(second);
  views_.restore(7);
  ASSERT_TRUE(start());
  EXPECT_TRUE(source.saved.empty());
  for (const FakeState* one : {&source, &second}) {
    EXPECT_EQ(one->loaded, std::vector<std::int64_t>{7});
    EXPECT_TRUE(one->bytes == *source.file);
  }
}

TEST_F(RingStateTest, ACheckpointWithoutItsFileEndsTheJobByName) {
  FakeState source(3, std::byte{1});
  add(source);
  views_.restore(7);
  views_.prepare(4, 2);
  threads_.emplace_back([&] { turns_.assign(1, ranks_[0]->synchronizer->next().status()); });
  EXPECT_TRUE(news_.await([&] { return !ranks_[0]->report().shard().problem().empty(); }));
  EXPECT_THAT(ranks_[0]->report().shard().problem(), HasSubstr("program-state.step-7"));
  EXPECT_TRUE(source.loaded.empty());
  fail();
}

TEST_F(RingStateTest, AProgramThatCannotGiveItEndsItsWorker) {
  FakeState source(3, std::byte{1});
  source.failure = absl::UnavailableError("the program is gone");
  FakeState second(3, std::byte{2});
  add(source);
  add(second);
  EXPECT_FALSE(start());
  EXPECT_TRUE(news_.await([&] { return answered_ == 1; }));
  EXPECT_EQ(turns_[0], source.failure);
  EXPECT_TRUE(second.loaded.empty());
  EXPECT_TRUE(ranks_[1]->report().shard().empty()) << "it holds no version that it could vouch for";
  fail();
}

// It would have to forget what it has learnt; a successor begins anew.
TEST_F(RingStateTest, WhereTheWeightsBeginAnewAProgramMustToo) {
  FakeState only(3, std::byte{1});
  only.is_initial = false;
  add(only);
  EXPECT_FALSE(start());
  EXPECT_TRUE(absl::IsUnavailable(turns_[0])) << turns_[0];
  EXPECT_THAT(std::string(turns_[0].message()), HasSubstr("epoch 1 begins anew"));
}

// The first version is a checkpoint's.
TEST_F(RingStateTest, IsWrittenBeforeTheCheckpointsFile) {
  FakeState only(3, std::byte{1});
  std::vector<std::int64_t> kept;
  bool before = false;
  add(only, [&](std::int64_t version) -> StatusOr<std::function<Status()>> {
    kept.push_back(version);
    return [&] {
      before = !ranks_[0]->written;
      return absl::OkStatus();
    };
  });
  ASSERT_TRUE(start());
  EXPECT_TRUE(news_.await([&] { return ranks_[0]->report().written_size() == 1; }));
  EXPECT_EQ(ranks_[0]->report().written(0).name(), "shard");
  EXPECT_EQ(kept, std::vector<std::int64_t>{0});
  EXPECT_TRUE(before);
}

TEST_F(RingStateTest, WithoutItThereIsNoCheckpoint) {
  FakeState only(3, std::byte{1});
  add(only, [](std::int64_t) -> StatusOr<std::function<Status()>> {
    return [] { return absl::ResourceExhaustedError("program-state.step-0.bin: no space left"); };
  });
  ASSERT_TRUE(start());
  EXPECT_TRUE(news_.await([&] { return ranks_[0]->report().written_size() == 1; }));
  EXPECT_THAT(ranks_[0]->report().written(0).error(), HasSubstr("no space left"));
  EXPECT_FALSE(ranks_[0]->written);
}

}  // namespace
}  // namespace trainyard::runtime::ring
