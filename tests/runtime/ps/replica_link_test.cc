// Steps on their way to a real server that keeps replicas.
#include "runtime/ps/replica_link.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "gmock/gmock.h"
#include "tests/runtime/ps/rpc_bench.h"

namespace trainyard::runtime::ps {
namespace {

using testing::UnorderedElementsAre;

class ReplicaLinkTest : public testing::Test {
 protected:
  ReplicaLinkTest()
      : keeper_(1, 1, [](ShardConfig& config) { config.ps = 1; }),
        link_({.access = {secretsOf(keys()), {v1::ROLE_PS, 0, incarnation(1, 1)}},
               .ps = 0,
               .memory = [this]() -> StatusOr<std::shared_ptr<SharedPool>> { return pool_; }},
              systemClock(), [this](const v1::ChunkRequestHeader& update) {
                std::lock_guard lock(mutex_);
                confirmed_.push_back(update.chunk());
                changed_.notify_all();
              }) {}
  // `near`: this server has the keeper's address.
  v1::EpochInfo epoch(std::int64_t number, bool near = false) const {
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
    if (near) *epoch.add_sources() = *source;
    if (near) epoch.mutable_sources(1)->set_ps(0);
    return epoch;
  }
  static ReplicaUpdate update(std::int64_t epoch, std::uint32_t chunk, std::int64_t step) {
    ReplicaUpdate update;
    update.header.set_job_uid(kJob);
    update.header.set_epoch(epoch);
    update.header.set_replica(true);
    update.header.set_worker(3);  // who has pushed is not who sends it
    update.header.set_chunk(chunk);
    update.header.set_step(step);
    update.header.set_samples(1);
    update.mean = std::make_shared<Weights>(8, 2.0f);
    return update;
  }
  std::uint64_t received() const {
    v1::RuntimeReport report;
    keeper_.service.replicaTraffic().fill(report);
    return report.traffic_size() == 0 ? 0 : report.traffic(0).received_bytes();
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

  static constexpr std::uint64_t kChunkBytes = 8 * sizeof(float);

  const std::shared_ptr<SharedPool> pool_ = SharedPool::create(kChunkBytes, 5).value();
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

// The mean is not sent then, but read where it lies.
TEST_F(ReplicaLinkTest, ANearServerReadsTheMeansInMemory) {
  link_.start(epoch(1, true));
  for (std::int64_t step = 0; step < 20; ++step) {
    ReplicaUpdate next = update(1, 2, step);
    const auto mean = makeWeights(8, pool_);
    std::fill(mean->begin(), mean->end(), 2.0f);
    next.mean = mean;
    std::vector<ReplicaUpdate> updates;
    updates.push_back(std::move(next));
    link_.send(std::move(updates));
    awaitConfirmed(static_cast<std::size_t>(step) + 1);
  }
  EXPECT_EQ(keeper_.shard.replicaVersion(2), 20);
  std::vector<ChunkAnswer> none;
  keeper_.shard.seal(2, none);
  EXPECT_THAT(*keeper_.shard.give(2, 2).value().weights, testing::Each(-40.0f));
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

// Two copies that differ are for the next epoch to mend; until then somebody should know.
TEST_F(ReplicaLinkTest, SaysOnceWhatAReplicaRefuses) {
  testing::internal::CaptureStderr();
  link_.start(epoch(1));
  link_.send({update(1, 3, 7), update(1, 0, 0)});
  awaitConfirmed(1);
  while (received() < 5 * kChunkBytes) {  // once what is taken, several times what is not
    link_.tick();
    std::this_thread::yield();
  }
  link_.close();
  const std::string log = testing::internal::GetCapturedStderr();
  const std::string line =
      "step 7 of chunk 3 waits: ps-1 refuses it for its replica: the replica of chunk 3 is at "
      "version 0, not 7";
  EXPECT_THAT(log, testing::HasSubstr(line));
  EXPECT_EQ(log.find(line), log.rfind(line)) << log;
  EXPECT_THAT(confirmed_, UnorderedElementsAre(0u));
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
