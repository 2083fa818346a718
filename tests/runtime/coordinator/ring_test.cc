// Strategy AllReduce: workers hold the state, and meet again under the next epoch when one fails.
#include "gmock/gmock.h"
#include "tests/runtime/coordinator/bench.h"

namespace trainyard::runtime {
namespace {

using testing::HasSubstr;

// Three workers that heed the coordinator as ring/ring_worker.h does.
struct Ring {
  // `start` of the coordinator's process.
  explicit Ring(std::optional<Manifest> newest = std::nullopt, std::uint32_t start = 1)
      : b(
            0, 3,
            [&](CoordinatorConfig& config) {
              config.ring = true;
              config.self = incarnation(1, start);
            },
            std::move(newest)) {
    b.c.setMembership(places(3, 2), b.now);
    for (auto& [key, r] : b.reports) begin(r, 2);
  }
  static v1::Membership places(int workers, std::int64_t revision) {
    v1::Membership membership = members(0, workers, revision);
    for (v1::MemberTask& task : *membership.mutable_tasks()) {
      task.set_created(1);
      task.set_ip("127.0.0." + std::to_string(task.id().index() + 1));
    }
    return membership;
  }
  static void begin(v1::MemberReport& r, std::int64_t revision) {
    r.set_revision(revision);
    r.set_ring_port(4000 + r.id().index());
    Bench::clear(r);
  }
  // One word of each, `rounds` times.
  void settle(int rounds = 8) {
    for (int round = 0; round < rounds; ++round) {
      for (auto& [key, r] : b.reports) {
        if (gone.contains(key.second)) continue;
        b.say(r);
        const v1::View& view = b.last_view;
        if (view.phase() != v1::PHASE_PREPARING || r.prepared_epoch() == view.epoch().epoch())
          continue;
        r.set_prepared_epoch(view.epoch().epoch());
        hold(key.second, view.epoch().first_step(), view.epoch().epoch());
      }
    }
  }
  void hold(std::uint32_t index, std::int64_t version, std::int64_t epoch) {
    v1::MemberReport& r = b.worker(index);
    Bench::setShard(r, version);
    r.mutable_worker()->set_version(version);
    r.mutable_worker()->set_epoch(epoch);
  }
  void fail(std::uint32_t index, const std::string& message) {
    v1::RingFailure* failure = b.worker(index).mutable_ring_failure();
    failure->set_epoch(b.last_view.epoch().epoch());
    failure->set_message(message);
    b.say(b.worker(index));
  }
  const v1::EpochInfo& epoch() const { return b.last_view.epoch(); }

  Bench b;
  std::set<std::uint32_t> gone;
};

TEST(CoordinatorRing, TheFirstEpochNamesPlacesAndStartsFromTheSeedOfRank0) {
  Ring ring;
  ring.settle();
  ASSERT_EQ(ring.b.c.phase(), v1::PHASE_ACTIVE) << ring.b.c.waitingFor(ring.b.now);
  EXPECT_TRUE(ring.epoch().fresh());
  EXPECT_EQ(ring.epoch().source_rank(), 0);
  ASSERT_EQ(ring.epoch().members_size(), 3);
  EXPECT_EQ(ring.epoch().members(2).ring_host(), "127.0.0.3");
  EXPECT_EQ(ring.epoch().members(2).ring_port(), 4002u);
}

TEST(CoordinatorRing, NobodyStartsBeforeAllPlacesAreKnown) {
  Ring ring;
  ring.b.worker(1).set_ring_port(0);
  ring.settle();
  EXPECT_EQ(ring.b.c.phase(), v1::PHASE_SEALING);
  ring.b.worker(1).set_ring_port(4001);
  ring.settle();
  EXPECT_EQ(ring.b.c.phase(), v1::PHASE_ACTIVE);
}

TEST(CoordinatorRing, AFailureEndsTheEpochAndTheNewestVersionCounts) {
  Ring ring;
  ring.settle();
  const std::int64_t first = ring.epoch().epoch();
  ring.hold(0, 41, first);
  ring.hold(1, 42, first);
  ring.b.restart(ring.b.worker(2));
  Bench::clear(ring.b.worker(2));
  ring.gone.insert(2);
  ring.fail(0, "rank 2 is lost (rank 2 is worker-2)");
  EXPECT_EQ(ring.b.logged("worker-0: rank 2 is lost (rank 2 is worker-2)"), 1);
  EXPECT_EQ(ring.b.c.phase(), v1::PHASE_SEALING);
  ring.settle();
  EXPECT_EQ(ring.b.c.phase(), v1::PHASE_SEALING) << "waits for the one that is lost";
  ring.gone.clear();
  ring.settle();
  ASSERT_EQ(ring.b.c.phase(), v1::PHASE_ACTIVE) << ring.b.c.waitingFor(ring.b.now);
  EXPECT_EQ(ring.epoch().first_step(), 42);
  EXPECT_EQ(ring.epoch().first_position(), 42 * 30);
  EXPECT_EQ(ring.epoch().source_rank(), 1);
  EXPECT_EQ(ring.epoch().lineage(), first);
  EXPECT_EQ(ring.b.c.progress(ring.b.now).lost_steps(), 0);
}

// Nobody else has the sums: who takes the step again takes the same.
TEST(CoordinatorRing, AStepThatOneRankAloneHasTakenIsNoneThatIsLost) {
  Ring ring;
  ring.settle();
  const std::int64_t first = ring.epoch().epoch();
  for (const std::uint32_t i : {0u, 2u}) ring.hold(i, 41, first);
  ring.hold(1, 42, first);
  ring.settle();
  EXPECT_EQ(ring.b.c.progress(ring.b.now).step(), 41);
  ring.b.restart(ring.b.worker(1));
  Bench::clear(ring.b.worker(1));
  ring.settle();
  ASSERT_EQ(ring.b.c.phase(), v1::PHASE_ACTIVE) << ring.b.c.waitingFor(ring.b.now);
  EXPECT_EQ(ring.epoch().first_step(), 41);
  EXPECT_EQ(ring.b.c.progress(ring.b.now).lost_steps(), 0);
}

// What a worker has kept from before a roll-back is of another history, however new it is.
TEST(CoordinatorRing, WhatIsOlderThanTheHistoryIsOfNoUse) {
  Manifest newest;
  newest.job_uid = "uid-1";
  newest.step = 20;
  newest.epoch = 3;
  newest.position = 600;
  newest.epochs = {{3, 0, 0, 3, 30}};
  Ring ring(newest);
  for (std::uint32_t i = 1; i < 3; ++i) {
    ring.hold(i, 50, 3);
    ring.b.worker(i).set_highest_epoch(3);
  }
  ring.settle();
  ASSERT_EQ(ring.b.c.phase(), v1::PHASE_ACTIVE) << ring.b.c.waitingFor(ring.b.now);
  EXPECT_EQ(ring.epoch().restore_manifest(), newest.fileName());
  EXPECT_EQ(ring.epoch().first_step(), 20);
  EXPECT_EQ(ring.b.c.progress(ring.b.now).lost_steps(), 30);
}

// worker-0 has died, and the coordinator with it.
TEST(CoordinatorRing, ACoordinatorThatStartsAgainGoesOnFromWhatTheOthersHold) {
  Ring former;
  former.settle();
  const v1::EpochInfo before = former.epoch();
  former.hold(1, 41, before.epoch());
  former.hold(2, 42, before.epoch());

  Manifest newest;
  newest.job_uid = "uid-1";
  newest.step = 20;
  newest.epoch = before.epoch();
  newest.position = 600;
  newest.epochs = {{before.epoch(), 0, 0, 3, 30}};
  Ring ring(newest, 2);
  *ring.b.worker(0).mutable_incarnation() = incarnation(1, 2);
  for (const std::uint32_t i : {1u, 2u}) {
    ring.b.worker(i) = former.b.worker(i);
    ring.b.worker(i).set_seen_view(0);
    *ring.b.worker(i).mutable_begun() = before;
  }
  ring.settle();
  ASSERT_EQ(ring.b.c.phase(), v1::PHASE_ACTIVE) << ring.b.c.waitingFor(ring.b.now);
  EXPECT_GT(ring.epoch().epoch(), before.epoch());
  EXPECT_EQ(ring.epoch().restore_manifest(), "");
  EXPECT_EQ(ring.epoch().first_step(), 42);
  EXPECT_EQ(ring.epoch().first_position(), 42 * 30);
  EXPECT_EQ(ring.epoch().source_rank(), 2);
  EXPECT_EQ(ring.epoch().lineage(), before.lineage());
  ASSERT_EQ(ring.epoch().past_size(), 1) << "it reads on as the one before";
  EXPECT_EQ(ring.epoch().past(0).epoch(), before.epoch());
  EXPECT_EQ(ring.b.last_view.lost_steps(), 0);
}

// Were it let in before, all would wait for a word of its machine.
TEST(CoordinatorRing, ANewcomerIsLetInOnceItsPlaceIsKnown) {
  Ring ring;
  ring.settle();
  v1::Membership membership = Ring::places(4, 3);
  membership.mutable_tasks(3)->clear_ip();
  ring.b.c.setMembership(membership, ring.b.now);
  Bench fresh(0, 4);
  Ring::begin(ring.b.reports[{v1::ROLE_WORKER, 3}] = fresh.worker(3), 3);
  const std::int64_t first = ring.epoch().epoch();
  for (std::uint32_t i = 0; i < 3; ++i) ring.hold(i, 7, first);
  ring.settle();
  EXPECT_EQ(ring.b.c.phase(), v1::PHASE_ACTIVE);
  EXPECT_EQ(ring.epoch().epoch(), first);
  EXPECT_FALSE(ring.b.last_view.hold());
  ring.b.c.setMembership(Ring::places(4, 4), ring.b.now);
  ring.settle();
  ASSERT_EQ(ring.b.c.phase(), v1::PHASE_ACTIVE) << ring.b.c.waitingFor(ring.b.now);
  ASSERT_EQ(ring.epoch().members_size(), 4);
  EXPECT_EQ(ring.epoch().first_step(), 7);
  EXPECT_EQ(ring.epoch().source_rank(), 0);
  EXPECT_EQ(ring.epoch().members(3).ring_host(), "127.0.0.4");
  EXPECT_EQ(ring.b.c.progress(ring.b.now).lost_steps(), 0);
}

TEST(CoordinatorRing, Rank0AloneWritesCheckpoints) {
  Ring ring;
  ring.settle();
  v1::ShardFile* file = ring.b.worker(0).add_written();
  file->set_epoch(ring.epoch().epoch());
  file->set_version(0);
  file->set_name("worker-0.step-0");
  ring.settle();
  ASSERT_EQ(ring.b.commits.size(), 1u);
  ASSERT_EQ(ring.b.commits[0].files.size(), 1u);
  EXPECT_EQ(ring.b.commits[0].files[0].name, "worker-0.step-0");
}

TEST(CoordinatorRing, FailuresWithoutAStepBetweenThemEndTheJob) {
  Ring ring;
  for (int i = 0; i < 40 && ring.b.c.phase() != v1::PHASE_FAILED; ++i) {
    ring.settle();
    if (i == 10) {
      for (std::uint32_t w = 0; w < 3; ++w) ring.hold(w, 1, ring.epoch().epoch());
      ring.settle();
    }
    ring.fail(1, "the network is down");
    ASSERT_TRUE(i >= 29 || ring.b.c.phase() != v1::PHASE_FAILED) << i;
  }
  EXPECT_EQ(ring.b.c.phase(), v1::PHASE_FAILED);
  EXPECT_THAT(ring.b.c.failure(), HasSubstr("20 times in a row: worker-1: the network is down"));
}

}  // namespace
}  // namespace trainyard::runtime
