#include "runtime/coordinator/epochs.h"

#include "runtime/coordinator/progress.h"
#include "tests/runtime/coordinator/parts_bench.h"

namespace trainyard::runtime {
namespace {

TEST(Epochs, GoAboveWhatMembersHaveHeardElsewhere) {
  PartsBench b;
  b.begin();
  b.epochs.heard(7);
  b.epochs.heard(3);
  b.epochs.end("a test", true, b.now, b.out);
  EXPECT_EQ(b.epochs.number(), 8);
}

// What it sealed under that number was another epoch; under this coordinator it is this one.
TEST(Epochs, AreRenumberedForWhoComesFromAnotherCoordinator) {
  PartsBench b;
  for (auto& [key, report] : b.reports) *report.mutable_seen_coordinator() = b.config.self;
  b.worker(0).set_highest_epoch(1);
  b.epochs.heard(1);
  b.say();
  EXPECT_FALSE(b.epochs.renumber(b.membership, b.out));
  *b.worker(0).mutable_seen_coordinator() = incarnation(1, 9);
  b.say();
  EXPECT_TRUE(b.epochs.renumber(b.membership, b.out));
  EXPECT_EQ(b.epochs.number(), 2);
  EXPECT_FALSE(b.epochs.renumber(b.membership, b.out)) << "that is above all it has seen";
}

TEST(Epochs, NameWhoCannotPrepareThoughOthersAreNotReady) {
  PartsBench b(2, 1);
  const v1::EpochInfo epoch = b.all(1);
  b.membership.enlist(epoch);
  b.epochs.prepare(epoch, b.now, b.out);
  b.ps(0).set_prepared_epoch(1);
  b.shard(1).set_problem("the file is torn");
  b.say();
  const Epochs::Prepared prepared = b.epochs.prepared(b.membership);
  EXPECT_FALSE(prepared.all);
  EXPECT_EQ(prepared.problem, "ps-1: the file is torn");
  EXPECT_EQ(b.epochs.waitingFor(b.membership, b.now), "ps-1");
}

// Files are the servers' affair, also those of a worker that keeps replicas; and nobody's who is
// not in the epoch.
TEST(Epochs, ServersOfTheEpochWriteItsCheckpoints) {
  PartsBench b(2, 1);
  v1::EpochInfo epoch = b.all(1);
  epoch.mutable_members()->DeleteSubrange(1, 1);
  b.membership.enlist(epoch);
  b.epochs.prepare(epoch, b.now, b.out);
  EXPECT_EQ(b.epochs.writers(b.membership), (std::set<MemberKey>{{v1::ROLE_PS, 0}}));
}

// Only the first return to a checkpoint is where the job was resumed; each costs what was behind.
TEST(Progress, CountsWhatIsLostAndRemembersWhereItWasResumed) {
  PartsBench b;
  Progress progress(b.config, 40);
  progress.startEpoch(40, 40, true);
  progress.reach(60);
  progress.startEpoch(50, 62, true);
  progress.giveUpAfter(45);
  progress.giveUpAfter(70);
  v1::JobProgress told;
  progress.tell(told, 10);
  EXPECT_EQ(told.resumed_from_step(), 40);
  EXPECT_EQ(told.lost_steps(), 12 + 5);
  EXPECT_EQ(told.step(), 45) << "from where it goes on";
}

// The weights of a worker are of no epoch that runs until it has seen it.
TEST(Progress, WhatIsSaidOfAFormerEpochIsNone) {
  PartsBench b(1, 1);
  Progress progress(b.config, 0);
  b.begin();
  b.worker().mutable_worker()->set_version(30);
  b.worker().mutable_worker()->set_epoch(b.epochs.number() - 1);
  b.say();
  progress.follow(b.membership, b.epochs.info(), nullptr, b.now, b.out);
  EXPECT_EQ(progress.version(), 0);
  b.worker().mutable_worker()->set_epoch(b.epochs.number());
  b.say();
  progress.follow(b.membership, b.epochs.info(), nullptr, b.now, b.out);
  EXPECT_EQ(progress.version(), 30);
}

}  // namespace
}  // namespace trainyard::runtime
