#include "runtime/ps/ps_machine.h"

#include "runtime/placement/moves.h"
#include "tests/runtime/ps/helpers.h"

namespace trainyard::runtime::ps {
namespace {

class PsMachineTest : public testing::Test {
 protected:
  PsMachineTest() : machine_(b_.shard) {}

  v1::View view(v1::Phase phase, std::int64_t epoch) {
    v1::View v;
    *v.mutable_coordinator() = incarnation(1, coordinator_);
    v.set_sequence(++sequence_);
    v.set_phase(phase);
    v.mutable_epoch()->set_epoch(epoch);
    v.mutable_epoch()->set_fresh(true);
    v.mutable_epoch()->set_step_samples(2);
    v.mutable_epoch()->set_steps(100);
    v.mutable_epoch()->add_members()->mutable_id()->set_role(v1::ROLE_PS);
    for (std::uint32_t w = 0; w < 2; ++w) {
      v1::EpochMember* m = v.mutable_epoch()->add_members();
      m->mutable_id()->set_role(v1::ROLE_WORKER);
      m->mutable_id()->set_index(w);
      m->set_rank(w);
    }
    v.set_stop_at(-1);
    v.set_checkpoint_at(-1);
    return v;
  }
  void see(const v1::View& v) { machine_.onView(v, b_.out); }
  void activate(std::int64_t epoch) {
    see(view(v1::PHASE_SEALING, epoch));
    see(view(v1::PHASE_PREPARING, epoch));
    const auto prepare = machine_.takePrepare();
    ASSERT_TRUE(prepare.has_value());
    b_.load();
    machine_.onPrepared(*prepare, absl::OkStatus());
    b_.epoch = epoch;
    see(view(v1::PHASE_ACTIVE, epoch));
  }
  v1::MemberReport report() const {
    v1::MemberReport r;
    machine_.fillReport(r);
    return r;
  }

  ShardBench b_;
  PsMachine machine_;
  std::uint32_t coordinator_ = 1;
  std::uint64_t sequence_ = 0;
};

// A worker's part that keeps replicas of an only server.
class KeeperMachineTest : public PsMachineTest {
 protected:
  v1::View kept(v1::Phase phase, std::int64_t epoch, int servers) {
    v1::View v = view(phase, epoch);
    v.mutable_epoch()->set_fresh(false);
    v.mutable_epoch()->set_replicated(true);
    for (int i = 1; i < servers; ++i) {
      v1::TaskId* id = v.mutable_epoch()->add_members()->mutable_id();
      id->set_role(v1::ROLE_PS);
      id->set_index(static_cast<std::uint32_t>(i));
    }
    return v;
  }
  void begin(std::int64_t epoch) {
    ShardBench& b = keeper_;
    see(kept(v1::PHASE_PREPARING, epoch, 1));
    const auto prepare = kept_.takePrepare();
    ASSERT_TRUE(prepare.has_value());
    b.shard.replicate({0, 1, 2}, false);
    for (const std::uint32_t chunk : {0u, 1u, 2u}) {
      if (b.shard.replicaVersion(chunk) < 0)
        b.shard.load(chunk, 0, std::vector<float>(b.elements(chunk)), {});
    }
    kept_.onPrepared(*prepare, absl::OkStatus());
    see(kept(v1::PHASE_ACTIVE, epoch, 1));
  }
  void see(const v1::View& v) { kept_.onView(v, keeper_.out); }
  v1::MemberReport report() const {
    v1::MemberReport r;
    r.set_highest_epoch(100);
    r.set_sealed_epoch(100);
    kept_.fillKept(r);
    return r;
  }

  ShardBench keeper_{[](ShardConfig& config) { config.ps = kWorkerKeeper; }};
  PsMachine kept_{keeper_.shard};
};

TEST_F(KeeperMachineTest, SaysWhatItKeepsBesideTheWorkersOwnReport) {
  EXPECT_TRUE(report().shard().empty());
  ASSERT_NO_FATAL_FAILURE(begin(3));
  EXPECT_EQ(report().prepared_epoch(), 3);
  EXPECT_EQ(report().sealed_epoch(), 3) << "the worker alone has sealed a later one";
  EXPECT_EQ(report().highest_epoch(), 100);
  EXPECT_FALSE(report().shard().empty());
  see(kept(v1::PHASE_SEALING, 4, 1));
  EXPECT_EQ(report().shard().replicas_size(), 3);
  EXPECT_FALSE(keeper_.shard.takeSnapshot().has_value()) << "checkpoints are the server's";
}

TEST_F(KeeperMachineTest, KeepsNothingOnceThereAreTwoServers) {
  ASSERT_NO_FATAL_FAILURE(begin(3));
  see(kept(v1::PHASE_PREPARING, 4, 2));
  EXPECT_FALSE(kept_.takePrepare().has_value());
  EXPECT_EQ(report().shard().replicas_size(), 3) << "the former map holds until the epoch begins";
  see(kept(v1::PHASE_ACTIVE, 4, 2));
  EXPECT_TRUE(report().shard().empty());
  EXPECT_EQ(report().shard().replicas_size(), 0);
}

// It may not have heard of an epoch that others computed in.
TEST_F(KeeperMachineTest, WhatItKeptBeforeStepsThatItMissedIsVoid) {
  for (const bool missed : {false, true}) {
    const std::int64_t first = missed ? 10 : 3;
    ASSERT_NO_FATAL_FAILURE(begin(first));
    v1::View next = kept(v1::PHASE_PREPARING, first + 3, 1);
    next.mutable_epoch()->add_past()->set_epoch(first);
    if (missed) next.mutable_epoch()->add_past()->set_epoch(first + 1);
    next.mutable_epoch()->add_past()->set_epoch(first + 3);
    see(next);
    ASSERT_TRUE(kept_.takePrepare().has_value());
    EXPECT_EQ(keeper_.shard.replicaVersion(0), missed ? -1 : 0);
  }
}

TEST_F(PsMachineTest, SealsPreparesOnceAndOpens) {
  EXPECT_TRUE(report().shard().empty());
  see(view(v1::PHASE_SEALING, 4));
  EXPECT_EQ(b_.shard.epoch(), 4);
  EXPECT_EQ(report().sealed_epoch(), 4);
  EXPECT_EQ(report().highest_epoch(), 4);
  EXPECT_EQ(report().prepared_epoch(), 0);
  EXPECT_FALSE(machine_.takePrepare().has_value());
  see(view(v1::PHASE_PREPARING, 4));
  see(view(v1::PHASE_PREPARING, 4));
  const auto prepare = machine_.takePrepare();
  ASSERT_TRUE(prepare.has_value());
  EXPECT_EQ(prepare->epoch(), 4);
  EXPECT_FALSE(machine_.takePrepare().has_value());
  b_.load();
  machine_.takeUrgent();
  machine_.onPrepared(*prepare, absl::OkStatus());
  EXPECT_TRUE(machine_.takeUrgent());
  EXPECT_FALSE(machine_.takeUrgent());
  EXPECT_EQ(report().prepared_epoch(), 4);
  EXPECT_FALSE(report().shard().empty());
  b_.epoch = 4;
  b_.push(0, 0, 0, 1);
  b_.push(0, 0, 1, 1);
  EXPECT_EQ(b_.code(b_.calls), v1::CHUNK_OK);  // two ranks, as the epoch says
}

// What it holds stays as it is, for others to fetch.
TEST_F(PsMachineTest, WhoIsNoMemberPreparesNothing) {
  activate(1);
  v1::View other = view(v1::PHASE_PREPARING, 2);
  other.mutable_epoch()->mutable_members(0)->mutable_id()->set_index(1);
  see(other);
  EXPECT_FALSE(machine_.takePrepare().has_value());
  EXPECT_EQ(report().sealed_epoch(), 2);
  EXPECT_FALSE(machine_.serves());
  EXPECT_TRUE(b_.shard.give(2, 0).ok());
  other.set_phase(v1::PHASE_ACTIVE);
  other.set_sequence(++sequence_);
  other.set_left(true);
  see(other);
  EXPECT_TRUE(machine_.over());
  EXPECT_TRUE(report().leaving());
}

TEST_F(PsMachineTest, TheLastVersionsFileIsReportedToTheEnd) {
  activate(1);
  for (const std::int64_t version : {100, 0, 10, 20, 30, 40}) {
    v1::ShardFile file;
    file.set_epoch(1);
    file.set_version(version);
    machine_.onWritten(file);
  }
  std::vector<std::int64_t> versions;
  const v1::MemberReport told = report();
  for (const v1::ShardFile& file : told.written()) versions.push_back(file.version());
  EXPECT_EQ(versions, (std::vector<std::int64_t>{20, 30, 40, 100}));
}

TEST_F(PsMachineTest, AFailureToLoadIsReported) {
  see(view(v1::PHASE_PREPARING, 1));
  machine_.onPrepared(*machine_.takePrepare(), absl::DataLossError("ps-0.step-3: sha256 differs"));
  EXPECT_EQ(report().shard().problem(), "ps-0.step-3: sha256 differs");
  EXPECT_EQ(report().prepared_epoch(), 0);
}

TEST_F(PsMachineTest, WhatWasLoadedForAnOlderEpochIsNotOpened) {
  see(view(v1::PHASE_PREPARING, 1));
  const auto old = machine_.takePrepare();
  see(view(v1::PHASE_SEALING, 2));
  b_.load();
  machine_.onPrepared(*old, absl::OkStatus());
  EXPECT_EQ(report().prepared_epoch(), 0);
  EXPECT_EQ(report().shard().problem(), "");
  see(view(v1::PHASE_PREPARING, 2));
  EXPECT_TRUE(machine_.takePrepare().has_value());
}

TEST_F(PsMachineTest, ANewEpochEndsParkedCalls) {
  activate(1);
  const CallId parked = b_.push(0, 0, 0, 1);
  see(view(v1::PHASE_SEALING, 2));
  EXPECT_EQ(b_.code(parked), v1::CHUNK_WRONG_EPOCH);
}

TEST_F(PsMachineTest, StaleViewsAreIgnoredAndAYoungerCoordinatorIsHeard) {
  activate(1);
  v1::View stale = view(v1::PHASE_SEALING, 9);
  stale.set_sequence(1);
  see(stale);
  EXPECT_EQ(b_.shard.epoch(), 1);
  coordinator_ = 2;
  sequence_ = 0;
  see(view(v1::PHASE_SEALING, 2));
  EXPECT_EQ(b_.shard.epoch(), 2);
  EXPECT_EQ(report().seen_coordinator().start(), 2u);
  EXPECT_EQ(report().seen_view(), 1u);
}

TEST_F(PsMachineTest, ArmsWhatTheCoordinatorAsksFor) {
  activate(1);
  v1::View v = view(v1::PHASE_ACTIVE, 1);
  v.set_checkpoint_at(7);
  see(v);
  EXPECT_EQ(report().shard().armed_checkpoint(), 7);
  v = view(v1::PHASE_STOPPING, 1);
  v.set_checkpoint_at(8);
  v.set_stop_at(0);  // when stopping only this counts
  const auto captureAll = [&] {
    while (b_.shard.captureNext()) {
    }
  };
  captureAll();
  b_.shard.takeSnapshot();
  see(v);
  captureAll();
  const auto snapshot = b_.shard.takeSnapshot();
  ASSERT_TRUE(snapshot.has_value());
  EXPECT_EQ(snapshot->version, 0);
}

TEST_F(PsMachineTest, ReportsTheNewestFilesAndThatItLeaves) {
  activate(1);
  for (int i = 0; i < 6; ++i) {
    v1::ShardFile file;
    file.set_version(i);
    machine_.onWritten(file);
  }
  ASSERT_EQ(report().written_size(), 4);
  EXPECT_EQ(report().written(0).version(), 2);
  EXPECT_EQ(report().written(3).version(), 5);
  EXPECT_FALSE(report().leaving());
  for (const v1::Phase phase : {v1::PHASE_DONE, v1::PHASE_STOPPED, v1::PHASE_FAILED}) {
    machine_.takeUrgent();
    see(view(phase, 1));
    EXPECT_TRUE(machine_.over());
    EXPECT_TRUE(machine_.takeUrgent());
    EXPECT_TRUE(report().leaving());
  }
}

}  // namespace
}  // namespace trainyard::runtime::ps
