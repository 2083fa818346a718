#include "runtime/ring/ring_worker.h"

#include "gtest/gtest.h"

namespace trainyard::runtime::ring {
namespace {

// A worker and a coordinator's views.
struct WorkerBench {
  explicit WorkerBench(std::uint32_t index = 0) : worker(configOf(index)) {
    view.mutable_coordinator()->set_created(1);
    view.set_stop_at(-1);
    view.set_checkpoint_at(-1);
  }
  static RingWorkerConfig configOf(std::uint32_t index) {
    RingWorkerConfig config;
    config.index = index;
    config.evaluates = false;
    config.port = 4000;
    return config;
  }
  void show(v1::Phase phase) {
    view.set_sequence(view.sequence() + 1);
    view.set_phase(phase);
    worker.onView(view);
  }
  void announce(std::int64_t number, std::int64_t first_step, bool fresh) {
    v1::EpochInfo& epoch = *view.mutable_epoch();
    epoch.Clear();
    epoch.set_epoch(number);
    show(v1::PHASE_SEALING);
    epoch.set_first_step(first_step);
    epoch.set_first_position(first_step * 20);
    epoch.set_fresh(fresh);
    epoch.set_step_samples(20);
    epoch.set_rank_samples(10);
    epoch.set_steps(100);
    epoch.set_lineage(1);
    for (std::uint32_t i = 0; i < 2; ++i) {
      v1::EpochMember* m = epoch.add_members();
      m->mutable_id()->set_role(v1::ROLE_WORKER);
      m->mutable_id()->set_index(i);
      m->set_rank(i);
    }
    show(v1::PHASE_PREPARING);
  }
  // Through the preparation of epoch `number`.
  void begin(std::int64_t number, std::int64_t first_step, bool fresh = false) {
    announce(number, first_step, fresh);
    const auto epoch = worker.takePrepare();
    ASSERT_TRUE(epoch.has_value());
    worker.beginReceive(*epoch);
    worker.onPrepared(*epoch);
    show(v1::PHASE_ACTIVE);
  }
  std::optional<Turn> turn() {
    const auto turn = worker.turn();
    EXPECT_TRUE(turn.ok());
    return turn.ok() ? *turn : std::nullopt;
  }
  void step() {
    ASSERT_TRUE(turn().has_value());
    ASSERT_TRUE(worker.beginApply());
    worker.applied(0.5);
  }
  v1::MemberReport report() const {
    v1::MemberReport report;
    worker.fillReport(report);
    return report;
  }

  RingWorker worker;
  v1::View view;
};

// Who copies between turns only must not leave it to be waited for.
TEST(RingWorker, ACheckpointThatIsNotTakenBeforeItsStepIsMissed) {
  WorkerBench b;
  b.begin(1, 0);
  ASSERT_TRUE(b.turn().has_value());
  b.view.set_checkpoint_at(0);
  b.show(v1::PHASE_ACTIVE);
  EXPECT_EQ(b.report().shard().armed_checkpoint(), 0);
  ASSERT_TRUE(b.worker.beginApply());
  b.worker.applied(0.5);
  EXPECT_EQ(b.report().shard().missed_checkpoint(), 0);
  EXPECT_NE(b.report().shard().armed_checkpoint(), 0);
  EXPECT_FALSE(b.worker.takeSnapshot());
}

TEST(RingWorker, PreparesOnceThenSteps) {
  WorkerBench b;
  EXPECT_FALSE(b.worker.takePrepare().has_value());
  EXPECT_TRUE(b.report().shard().empty());
  b.begin(1, 0, true);
  EXPECT_FALSE(b.worker.takePrepare().has_value());
  EXPECT_EQ(b.report().prepared_epoch(), 1);
  const auto turn = b.turn();
  ASSERT_TRUE(turn.has_value());
  EXPECT_EQ(turn->samples, 10);
  EXPECT_FALSE(b.turn().has_value()) << "a step is under way";
  ASSERT_TRUE(b.worker.beginApply());
  b.worker.applied(0.25);
  EXPECT_EQ(b.report().shard().min_version(), 1);
  EXPECT_EQ(b.report().worker().loss(), 0.25);
}

// A new epoch starts from what is reported: a step that is being applied must be waited for.
TEST(RingWorker, DoesNotVouchForASealWhileItApplies) {
  WorkerBench b;
  b.begin(1, 0, true);
  ASSERT_TRUE(b.turn().has_value());
  ASSERT_TRUE(b.worker.beginApply());
  b.view.mutable_epoch()->set_epoch(2);
  b.show(v1::PHASE_SEALING);
  EXPECT_EQ(b.report().sealed_epoch(), 1);
  b.worker.takeUrgent();
  b.worker.applied(0.5);
  EXPECT_TRUE(b.worker.takeUrgent());
  EXPECT_EQ(b.report().sealed_epoch(), 2);
  EXPECT_EQ(b.report().worker().version(), 1);
}

TEST(RingWorker, SumsThatComeAfterASealAreNotTaken) {
  WorkerBench b;
  b.begin(1, 0, true);
  ASSERT_TRUE(b.turn().has_value());
  EXPECT_FALSE(b.worker.cancelled(1));
  b.view.mutable_epoch()->set_epoch(2);
  b.show(v1::PHASE_SEALING);
  EXPECT_TRUE(b.worker.cancelled(1));
  EXPECT_FALSE(b.worker.beginApply());
  b.worker.leaveStep();
  EXPECT_EQ(b.report().worker().version(), 0);
}

TEST(RingWorker, KeepsWhatTheNextEpochStartsFrom) {
  WorkerBench b(1);
  b.begin(1, 0, true);
  b.step();
  b.announce(2, 1, false);
  const auto same = b.worker.takePrepare();
  ASSERT_TRUE(same.has_value());
  EXPECT_FALSE(b.worker.beginReceive(*same));
  EXPECT_EQ(b.report().worker().version(), 1);
  b.announce(3, 5, false);
  const auto ahead = b.worker.takePrepare();
  ASSERT_TRUE(ahead.has_value());
  EXPECT_TRUE(b.worker.beginReceive(*ahead));
  EXPECT_TRUE(b.report().shard().empty()) << "it may be half written over";
}

TEST(RingWorker, AFailureIsReportedUntilTheNextEpoch) {
  WorkerBench b;
  b.begin(1, 0, true);
  ASSERT_TRUE(b.turn().has_value());
  b.worker.onFailure(1, "rank 1 is lost");
  b.worker.leaveStep();
  EXPECT_EQ(b.report().ring_failure().message(), "rank 1 is lost");
  EXPECT_FALSE(b.turn().has_value());
  b.begin(2, 0);
  EXPECT_TRUE(b.turn().has_value());
  b.worker.onFailure(1, "too late to matter");
  EXPECT_EQ(b.report().ring_failure().message(), "rank 1 is lost");
}

TEST(RingWorker, ASealedOneTellsOfTheEpochThatRan) {
  WorkerBench b;
  b.begin(1, 0, true);
  EXPECT_EQ(b.report().begun().epoch(), 0) << "it still runs";
  b.announce(2, 0, false);
  EXPECT_EQ(b.report().begun().epoch(), 1);
  EXPECT_EQ(b.report().begun().members_size(), 2);
  ASSERT_TRUE(b.worker.takePrepare().has_value());
  EXPECT_EQ(b.report().begun().epoch(), 1) << "it does not hold the state of the next yet";
}

// Others rest at version 1; this one has begun the step from there, which will never be complete.
TEST(RingWorker, AStopEndsAStepThatOthersDoNotTake) {
  WorkerBench b;
  b.begin(1, 0, true);
  b.step();
  ASSERT_TRUE(b.turn().has_value());
  b.show(v1::PHASE_STOPPING);
  EXPECT_FALSE(b.worker.cancelled(1));
  b.view.set_stop_at(1);
  b.show(v1::PHASE_STOPPING);
  EXPECT_TRUE(b.worker.cancelled(1));
  b.worker.leaveStep();
  EXPECT_TRUE(b.report().worker().idle());
  EXPECT_TRUE(b.worker.takeSnapshot());
  EXPECT_FALSE(b.worker.takeSnapshot());
}

TEST(RingWorker, WhoIsDoneKnowsThatAllStepsWereTakenAndWhoHasLeftDoesNot) {
  for (const bool left : {false, true}) {
    WorkerBench b;
    b.begin(1, 0, true);
    ASSERT_TRUE(b.turn().has_value());
    b.view.set_progress(1);
    b.view.set_left(left);
    b.show(left ? v1::PHASE_ACTIVE : v1::PHASE_DONE);
    const auto turn = b.turn();
    ASSERT_TRUE(turn.has_value());
    EXPECT_EQ(turn->kind, left ? Turn::Kind::kLeft : Turn::Kind::kDone);
    EXPECT_EQ(turn->taken, left ? 0 : 1);
  }
}

TEST(RingWorker, Rank0CopiesTheVersionsThatAreAskedFor) {
  WorkerBench b;
  b.begin(1, 0, true);
  EXPECT_TRUE(b.worker.takeSnapshot()) << "the first of a fresh start";
  b.view.set_checkpoint_at(2);
  b.show(v1::PHASE_ACTIVE);
  b.step();
  EXPECT_FALSE(b.worker.takeSnapshot());
  b.step();
  EXPECT_TRUE(b.worker.takeSnapshot());
  b.view.set_checkpoint_at(1);
  b.show(v1::PHASE_ACTIVE);
  EXPECT_EQ(b.report().shard().missed_checkpoint(), 1);
  WorkerBench other(1);
  other.begin(1, 0, true);
  EXPECT_FALSE(other.worker.takeSnapshot());
}

TEST(RingWorker, AfterAnAbortThereIsNoStep) {
  WorkerBench b;
  b.begin(1, 0, true);
  ASSERT_TRUE(b.turn().has_value());
  b.worker.abort(0, "w", "not finite");
  EXPECT_FALSE(b.worker.beginApply());
  b.worker.leaveStep();
  EXPECT_FALSE(b.turn().has_value());
  EXPECT_EQ(b.report().abort().variable(), "w");
}

}  // namespace
}  // namespace trainyard::runtime::ring
