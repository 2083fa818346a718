#include "gmock/gmock.h"
#include "tests/runtime/ps/helpers.h"

namespace trainyard::runtime::ps {
namespace {

using testing::Each;

v1::OptimizerSpec withMomentum() {
  v1::OptimizerSpec spec;
  spec.set_name("Momentum");
  spec.set_learning_rate(1);
  spec.set_momentum(0.5);
  return spec;
}

// One worker: each push completes the step of its chunk.
class SnapshotTest : public testing::Test {
 protected:
  SnapshotTest() : b_({}, withMomentum()) {}
  void open(bool fresh = false) { b_.open(planFor(0, 1, 4), fresh); }
  void captureAll() {
    while (b_.shard.captureNext()) {
    }
  }
  ShardBench b_;
};

TEST_F(SnapshotTest, HoldsEveryChunkAtExactlyTheArmedVersion) {
  open();
  EXPECT_TRUE(b_.shard.arm(2));
  EXPECT_EQ(b_.shard.state().armed_checkpoint(), 2);
  b_.push(0, 0, 0, 2);
  b_.push(0, 1, 0, 2);
  b_.push(0, 2, 0, 2);  // chunk 0 goes beyond before chunk 2 is there
  b_.push(2, 0, 0, 1);
  EXPECT_FALSE(b_.shard.takeSnapshot().has_value());
  b_.push(2, 1, 0, 1);
  const auto snapshot = b_.shard.takeSnapshot();
  ASSERT_TRUE(snapshot.has_value());
  EXPECT_EQ(snapshot->version, 2);
  EXPECT_EQ(snapshot->epoch, 1);
  ASSERT_EQ(snapshot->chunks.size(), 2u);
  EXPECT_EQ(snapshot->chunks[0].chunk, 0u);
  EXPECT_EQ(snapshot->chunks[1].chunk, 2u);
  // a1 = 2, a2 = 1 + 2 = 3: w = -5.
  EXPECT_THAT(*snapshot->chunks[0].weights, Each(-5.0f));
  EXPECT_THAT(snapshot->chunks[0].slots[0], Each(3.0f));
  EXPECT_THAT(*snapshot->chunks[1].weights, Each(-2.5f));
  EXPECT_FALSE(b_.shard.takeSnapshot().has_value());  // once
  EXPECT_EQ(b_.shard.state().armed_checkpoint(), -1);
  EXPECT_EQ(b_.shard.state().missed_checkpoint(), -1);
}

// Its weights are those of the shard, which takes the memory of old versions for new ones.
TEST_F(SnapshotTest, StaysAsItIsWhileStepsGoOn) {
  open();
  EXPECT_TRUE(b_.shard.arm(1));
  b_.push(0, 0, 0, 2);
  b_.push(2, 0, 0, 1);
  const auto snapshot = b_.shard.takeSnapshot();
  ASSERT_TRUE(snapshot.has_value());
  for (std::int64_t step = 1; step < 5; ++step) {
    b_.push(0, step, 0, 2);
    b_.push(2, step, 0, 1);
  }
  EXPECT_THAT(*snapshot->chunks[0].weights, Each(-2.0f));
  EXPECT_THAT(snapshot->chunks[0].slots[0], Each(2.0f));
  EXPECT_THAT(*snapshot->chunks[1].weights, Each(-1.0f));
}

// Nothing is copied for a checkpoint before a step changes it.
TEST_F(SnapshotTest, SlotsAreTheShardsUntilTheNextStep) {
  open();
  EXPECT_TRUE(b_.shard.arm(1));
  b_.push(0, 0, 0, 2);
  b_.push(2, 0, 0, 1);
  auto first = b_.shard.takeSnapshot();
  ASSERT_TRUE(first.has_value());
  const float* const shared = first->chunks[0].slots[0].data();
  first.reset();  // is written
  EXPECT_TRUE(b_.shard.arm(2));
  b_.push(0, 1, 0, 2);
  b_.push(2, 1, 0, 1);
  const auto second = b_.shard.takeSnapshot();
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->chunks[0].slots[0].data(), shared) << "was copied, though nobody had it";
  b_.push(0, 2, 0, 2);
  EXPECT_THAT(second->chunks[0].slots[0], Each(3.0f));
}

TEST_F(SnapshotTest, AVersionThatIsPastIsMissed) {
  open();
  b_.push(0, 0, 0, 1);
  b_.push(0, 1, 0, 1);
  EXPECT_FALSE(b_.shard.arm(1));
  EXPECT_EQ(b_.shard.state().missed_checkpoint(), 1);
  EXPECT_EQ(b_.shard.state().armed_checkpoint(), -1);
  EXPECT_TRUE(b_.shard.arm(2));  // chunk 0 is there already
  captureAll();
  b_.push(2, 0, 0, 1);
  b_.push(2, 1, 0, 1);
  EXPECT_TRUE(b_.shard.takeSnapshot().has_value());
}

TEST_F(SnapshotTest, TheLastVersionIsTakenUnasked) {
  open();
  for (std::int64_t step = 0; step < 4; ++step) {
    b_.push(0, step, 0, 1);
    b_.push(2, step, 0, 1);
  }
  const auto snapshot = b_.shard.takeSnapshot();
  ASSERT_TRUE(snapshot.has_value());
  EXPECT_EQ(snapshot->version, 4);
}

TEST_F(SnapshotTest, AFreshStartIsTakenUnasked) {
  open(true);
  EXPECT_FALSE(b_.shard.takeSnapshot().has_value()) << "opening copies nothing";
  captureAll();
  const auto snapshot = b_.shard.takeSnapshot();
  ASSERT_TRUE(snapshot.has_value());
  EXPECT_EQ(snapshot->version, 0);
}

// What is there already is copied chunk by chunk, while steps go on.
TEST_F(SnapshotTest, AChunkIsCopiedBeforeItLeavesTheVersion) {
  open();
  b_.push(0, 0, 0, 2);
  b_.push(2, 0, 0, 1);
  ASSERT_TRUE(b_.shard.arm(1));
  EXPECT_FALSE(b_.shard.takeSnapshot().has_value()) << "arming copies nothing";
  b_.push(0, 1, 0, 2);  // nobody has copied it yet
  EXPECT_TRUE(b_.shard.captureNext());
  EXPECT_FALSE(b_.shard.captureNext()) << "both are copied";
  const auto snapshot = b_.shard.takeSnapshot();
  ASSERT_TRUE(snapshot.has_value());
  EXPECT_EQ(snapshot->version, 1);
  EXPECT_THAT(*snapshot->chunks[0].weights, Each(-2.0f));
  EXPECT_THAT(snapshot->chunks[0].slots[0], Each(2.0f));
  EXPECT_THAT(*snapshot->chunks[1].weights, Each(-1.0f));
  EXPECT_EQ(b_.shard.state().missed_checkpoint(), -1);
}

TEST_F(SnapshotTest, SealDropsWhatIsIncomplete) {
  open();
  b_.shard.arm(1);
  b_.push(0, 0, 0, 1);
  b_.shard.seal(2, b_.out);
  EXPECT_EQ(b_.shard.state().armed_checkpoint(), -1);
  EXPECT_FALSE(b_.shard.arm(1));  // nobody is asked while sealed
  ASSERT_TRUE(b_.shard.open(2, planFor(0, 1, 4), false, false).ok());
  b_.epoch = 2;
  b_.push(2, 0, 0, 1);
  EXPECT_FALSE(b_.shard.takeSnapshot().has_value());
}

}  // namespace
}  // namespace trainyard::runtime::ps
