// Steps on their way to a real server that keeps replicas.
#include "runtime/ps/replica_link.h"

#include <condition_variable>
#include <mutex>

#include "gmock/gmock.h"
#include "tests/runtime/ps/rpc_bench.h"

namespace trainyard::runtime::ps {
namespace {

using testing::UnorderedElementsAre;

class ReplicaLinkTest : public testing::Test {
 protected:
  ReplicaLinkTest()
      : keeper_(1, 1, [](ShardConfig& config) { config.ps = 1; }),
        link_({.token = kToken, .ps = 0}, systemClock(),
              [this](const v1::ChunkRequestHeader& update) {
                std::lock_guard lock(mutex_);
                confirmed_.push_back(update.chunk());
                changed_.notify_all();
              }) {}
  v1::EpochInfo epoch(std::int64_t number) const {
    v1::EpochInfo epoch;
    epoch.set_epoch(number);
    epoch.set_replicated(true);
    for (std::uint32_t ps = 0; ps < 2; ++ps) {
      v1::TaskId* id = epoch.add_members()->mutable_id();
      id->set_role(v1::ROLE_PS);
      id->set_index(ps);
    }
    v1::ChunkSource* source = epoch.add_sources();
    source->set_ps(1);
    *source->mutable_incarnation() = incarnation(1, 1);
    source->set_address(keeper_.address);
    return epoch;
  }
  static ReplicaUpdate update(std::int64_t epoch, std::uint32_t chunk, std::int64_t step) {
    ReplicaUpdate update;
    update.header.set_job_uid(kJob);
    update.header.set_epoch(epoch);
    update.header.set_replica(true);
    update.header.set_chunk(chunk);
    update.header.set_step(step);
    update.header.set_samples(1);
    update.mean = std::make_shared<Weights>(8, 2.0f);
    return update;
  }
  // Repeats what has to be repeated until so many have been confirmed.
  void awaitConfirmed(std::size_t count) {
    std::unique_lock lock(mutex_);
    while (confirmed_.size() < count) {
      changed_.wait_for(lock, std::chrono::milliseconds(20));
      lock.unlock();
      link_.tick();
      lock.lock();
    }
  }

  PsServer keeper_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::uint32_t> confirmed_;
  ReplicaLink link_;  // last: its calls use the rest
};

TEST_F(ReplicaLinkTest, StepsArriveAndAreConfirmed) {
  link_.start(epoch(1));
  link_.send({update(1, 0, 0), update(1, 3, 0)});
  awaitConfirmed(2);
  EXPECT_THAT(confirmed_, UnorderedElementsAre(0u, 3u));
  EXPECT_EQ(keeper_.shard.replicaVersion(0), 1);
  EXPECT_EQ(keeper_.shard.replicaVersion(1), 0);
  EXPECT_EQ(keeper_.shard.replicaVersion(3), 1);
  link_.send({update(1, 0, 1)});
  awaitConfirmed(3);
  EXPECT_EQ(keeper_.shard.replicaVersion(0), 2);
  v1::RuntimeReport received;
  keeper_.service.replicaTraffic().fill(received);
  ASSERT_EQ(received.traffic_size(), 1);
  EXPECT_EQ(received.traffic(0).peer().role(), v1::ROLE_PS);
  EXPECT_EQ(received.traffic(0).peer().index(), 0u);
  EXPECT_EQ(received.traffic(0).received_bytes(), 3u * 32u);
  EXPECT_EQ(keeper_.service.requests(), 0u) << "no worker has asked for anything";
}

TEST_F(ReplicaLinkTest, RepeatsUntilTheServerHasBegunTheEpoch) {
  std::vector<ChunkAnswer> none;
  keeper_.shard.seal(2, none);
  link_.start(epoch(2));
  link_.send({update(2, 0, 0)});
  link_.tick();
  EXPECT_EQ(keeper_.shard.replicaVersion(0), 0);
  ASSERT_TRUE(keeper_.shard.open(2, planFor(0, 1), false, false).ok());
  awaitConfirmed(1);
  EXPECT_EQ(keeper_.shard.replicaVersion(0), 1);
}

TEST_F(ReplicaLinkTest, SendsNothingOfAnEarlierEpoch) {
  link_.start(epoch(1));
  link_.send({update(0, 0, 0)});
  v1::EpochInfo alone = epoch(1);
  alone.set_replicated(false);
  link_.start(alone);
  link_.send({update(1, 0, 0)});
  link_.close();
  EXPECT_TRUE(confirmed_.empty());
  EXPECT_EQ(keeper_.shard.replicaVersion(0), 0);
}

}  // namespace
}  // namespace trainyard::runtime::ps
