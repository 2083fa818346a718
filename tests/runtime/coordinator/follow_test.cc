// Progress, evaluation, checkpoints, stops, the end.
#include "gmock/gmock.h"
#include "tests/runtime/coordinator/bench.h"

namespace trainyard::runtime {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::function<void(CoordinatorConfig&)> every(Duration checkpoint_every) {
  return [=](CoordinatorConfig& c) { c.checkpoint_every = checkpoint_every; };
}

TEST(CoordinatorProgress, FollowsWorkersAndServers) {
  Bench b(2, 2);
  b.activate();
  Bench::setShard(b.ps(0), 4, 5);
  Bench::setShard(b.ps(1), 5, 5);
  b.settle();
  EXPECT_EQ(b.c.progress(b.now).step(), 4);
  b.now += seconds(1);
  b.worker(1).mutable_worker()->set_version(5);
  b.worker(1).mutable_worker()->set_has_loss(true);
  b.worker(1).mutable_worker()->set_loss(0.75);
  b.worker(1).mutable_worker()->set_loss_step(4);
  b.settle();
  const v1::JobProgress progress = b.c.progress(b.now);
  EXPECT_EQ(progress.step(), 5);
  EXPECT_EQ(progress.steps(), 100);
  EXPECT_TRUE(progress.has_loss());
  EXPECT_DOUBLE_EQ(progress.loss(), 0.75);
  EXPECT_GT(progress.examples_per_second(), 0);
  EXPECT_EQ(progress.outcome(), "");
}

TEST(CoordinatorEvaluation, IsWholeWhenEveryRankHasSaidItsPart) {
  Bench b;
  b.activate();
  b.evaluated(0, 20, 30, 1);
  b.settle();
  EXPECT_TRUE(b.evaluations.empty());
  b.evaluated(1, 20, 40, 1);
  b.settle();
  ASSERT_EQ(b.evaluations.size(), 1u);
  EXPECT_EQ(b.evaluations[0].version(), 20);
  EXPECT_EQ(b.evaluations[0].hits(), 70);
  EXPECT_EQ(b.evaluations[0].samples(), 100);
  EXPECT_EQ(b.last_view.evaluation().hits(), 70);
  EXPECT_DOUBLE_EQ(b.c.progress(b.now).accuracy(), 0.7);
  EXPECT_EQ(b.c.progress(b.now).accuracy_step(), 20);
}

// Of several that become whole between two views all are told: the chief writes each down.
TEST(CoordinatorEvaluation, ThoseBeforeTheNewestAreToldToo) {
  Bench b;
  b.activate();
  for (const std::int64_t version : {20, 40, 60}) {
    for (const std::uint32_t worker : {0U, 1U}) b.evaluated(worker, version, version / 2, 1);
  }
  b.settle();
  EXPECT_EQ(b.last_view.evaluation().version(), 60);
  ASSERT_EQ(b.last_view.earlier_evaluations_size(), 2);
  EXPECT_EQ(b.last_view.earlier_evaluations(0).version(), 20);
  EXPECT_EQ(b.last_view.earlier_evaluations(0).hits(), 20);
  EXPECT_EQ(b.last_view.earlier_evaluations(1).version(), 40);
  for (std::int64_t version = 80; version < 800; version += 20) {
    for (const std::uint32_t worker : {0U, 1U}) b.evaluated(worker, version, 1, 1);
    b.settle();
  }
  EXPECT_EQ(b.last_view.earlier_evaluations_size(), 16);
  EXPECT_EQ(b.last_view.earlier_evaluations(15).version(), 760);
}

TEST(CoordinatorEvaluation, PartsOfOneHistoryMayComeUnderTwoEpochs) {
  Bench b;
  b.activate();
  b.reach(20);
  b.evaluated(0, 20, 30, 1);
  b.settle();
  b.now += seconds(6);
  b.settle();  // an epoch later, with the same workers and weights
  ASSERT_EQ(b.last_view.epoch().epoch(), 2);
  b.evaluated(1, 20, 40, 2);
  b.settle();
  ASSERT_EQ(b.evaluations.size(), 1u);
  EXPECT_EQ(b.evaluations[0].hits(), 70);
}

TEST(CoordinatorEvaluation, SlicesOfAnotherNumberOfWorkersAreNotAdded) {
  Bench b(1, 2);
  b.activate();
  b.reach(20);
  b.evaluated(0, 20, 30, 1);
  b.settle();
  b.join(1, 3);
  for (auto& [key, r] : b.reports) r.set_revision(2);
  b.worker(0).mutable_worker()->set_version(20);
  b.worker(1).mutable_worker()->set_version(20);
  b.evaluated(0, 20, 30, 1);  // not yet seen as whole, so still reported
  b.c.setMembership(members(1, 3, 2), b.now);
  Bench::setShard(b.ps(), 20);
  b.activate();
  ASSERT_EQ(b.last_view.epoch().members_size(), 4);
  const std::int64_t epoch = b.last_view.epoch().epoch();
  b.evaluated(1, 20, 11, epoch);
  b.evaluated(2, 20, 12, epoch);
  b.settle();
  EXPECT_TRUE(b.evaluations.empty());
  b.evaluated(0, 20, 10, epoch);
  b.settle();
  ASSERT_EQ(b.evaluations.size(), 1u);
  EXPECT_EQ(b.evaluations[0].hits(), 33);
}

TEST(CoordinatorCheckpoint, TheStartIsCommittedAndThenWhatIsAskedFor) {
  Bench b(2, 2, every(seconds(50)));
  b.activate();
  b.write(0);
  ASSERT_EQ(b.commits.size(), 1u);
  EXPECT_EQ(b.commits[0].step, 0);
  EXPECT_EQ(b.commits[0].epoch, 1);
  ASSERT_EQ(b.commits[0].files.size(), 2u);
  EXPECT_EQ(b.commits[0].files[1].name, "ps-1.step-0");
  b.commit();
  EXPECT_EQ(b.last_view.last_checkpoint(), 0);
  EXPECT_TRUE(b.c.progress(b.now).has_checkpoint());
  EXPECT_EQ(b.last_view.checkpoint_at(), -1);
  for (int i = 1; i <= 50; ++i) {
    b.now += seconds(1);
    b.reach(i);
  }
  // One step a second: the least lead.
  EXPECT_EQ(b.last_view.checkpoint_at(), 52);
  b.write(52);
  ASSERT_EQ(b.commits.size(), 2u);
  EXPECT_EQ(b.commits[1].position, 52 * 20);
  b.commit();
  EXPECT_EQ(b.last_view.last_checkpoint(), 52);
  EXPECT_EQ(b.last_view.checkpoint_at(), -1);
}

TEST(CoordinatorCheckpoint, OnlyFilesOfTheSameEpochMakeAWhole) {
  Bench b(2, 1);
  b.activate();
  v1::ShardFile* old = b.ps(0).add_written();
  old->set_version(0);
  old->set_epoch(0);
  v1::ShardFile* now = b.ps(1).add_written();
  now->set_version(0);
  now->set_epoch(1);
  b.settle();
  EXPECT_TRUE(b.commits.empty());
  old->set_epoch(1);
  b.settle();
  EXPECT_EQ(b.commits.size(), 1u);
}

TEST(CoordinatorCheckpoint, AskedTooLateItAsksFurtherAhead) {
  Bench b(1, 1, every(seconds(1)));
  b.activate();
  b.write(0);
  b.commit();
  b.now += seconds(1);
  b.reach(20);  // 20 steps a second
  const std::int64_t first = b.last_view.checkpoint_at();
  EXPECT_EQ(first, 20 + 6);  // 0.3 s ahead
  b.ps().mutable_shard()->set_missed_checkpoint(first);
  b.settle();
  EXPECT_EQ(b.last_view.checkpoint_at(), 20 + 12);
  b.ps().mutable_shard()->set_missed_checkpoint(32);
  b.settle();
  EXPECT_EQ(b.last_view.checkpoint_at(), 20 + 24);
}

TEST(CoordinatorCheckpoint, AFailedShardIsSaidOnceAndTrainingGoesOn) {
  Bench b(1, 1, every(seconds(1)));
  b.activate();
  b.write(0, "disk full");
  b.tick(seconds(1));
  EXPECT_EQ(b.logged("checkpoint at step 0 failed, training goes on: ps-0: disk full"), 1);
  b.reach(3);
  ASSERT_EQ(b.last_view.checkpoint_at(), 3 + 2);
  b.write(b.last_view.checkpoint_at(), "disk full");
  EXPECT_EQ(b.logged("disk full"), 1);
  EXPECT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
  b.now += seconds(1);
  b.settle();
  ASSERT_GT(b.last_view.checkpoint_at(), 3);
  b.write(b.last_view.checkpoint_at());  // there is room again
  ASSERT_EQ(b.commits.size(), 1u);
  b.commit();
  EXPECT_GT(b.last_view.last_checkpoint(), 3);
}

TEST(CoordinatorCheckpoint, IsMeasuredFromTheDecisionToTheCommit) {
  Bench b(1, 1, every(seconds(1)));
  b.activate();
  b.write(0);
  b.commit();
  v1::Measurements measured;
  b.c.measure(measured);
  const double first = measured.checkpoint_times().sum();
  b.now += seconds(1);
  b.reach(20);  // decides on one
  ASSERT_GT(b.last_view.checkpoint_at(), 20);
  b.now += seconds(4);
  b.write(b.last_view.checkpoint_at());
  b.now += seconds(2);
  ASSERT_EQ(b.commits.size(), 2u);
  b.commits.back().files.at(0).size = 1000;
  b.commit();
  b.c.measure(measured);
  EXPECT_DOUBLE_EQ(measured.checkpoint_times().sum(), first + 6);
  EXPECT_EQ(measured.checkpoint_bytes(), 1000);
  std::uint64_t count = 0;
  for (const std::uint64_t of_bucket : measured.checkpoint_times().counts()) count += of_bucket;
  EXPECT_EQ(count, 2u);
}

TEST(CoordinatorProgress, TheTimeOfAnEpochChangeIsMeasured) {
  Bench b(1, 2);
  b.activate();
  b.reach(5);
  const auto changes = [&] {
    v1::Measurements measured;
    b.c.measure(measured);
    return measured.epoch_change_times();
  };
  EXPECT_EQ(changes().sum(), 0) << "the first epoch changed nothing";
  b.restart(b.worker(1));
  b.say(b.worker(1));
  b.now += seconds(3);
  b.settle();
  ASSERT_EQ(b.c.phase(), v1::PHASE_ACTIVE) << b.c.waitingFor(b.now);
  EXPECT_EQ(changes().sum(), 0) << "it has taken no step yet";
  b.now += seconds(1);
  b.reach(6);
  EXPECT_DOUBLE_EQ(changes().sum(), 4);
  b.reach(7);
  EXPECT_DOUBLE_EQ(changes().sum(), 4);
}

TEST(CoordinatorCheckpoint, ACommitThatFailsIsNotTakenForOne) {
  Bench b(1, 2, every(seconds(1)));
  b.activate();
  b.write(0);
  b.c.onCommitted(b.commits[0], absl::ResourceExhaustedError("disk full"), b.now);
  b.take();
  EXPECT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
  EXPECT_FALSE(b.c.progress(b.now).has_checkpoint());
  EXPECT_EQ(b.logged("failed, training goes on: disk full"), 1);
  b.settle();
  EXPECT_EQ(b.commits.size(), 1u) << "the same version is not tried again and again";
  b.now += seconds(1);
  b.reach(3);
  b.write(b.last_view.checkpoint_at());
  ASSERT_EQ(b.commits.size(), 2u);
  b.c.onCommitted(b.commits[1], absl::ResourceExhaustedError("disk full"), b.now);
  b.take();
  EXPECT_EQ(b.logged("failed, training goes on"), 1) << "said once";
}

TEST(CoordinatorCheckpoint, WithoutTheLastOneTheJobFails) {
  Bench b;
  b.activate();
  b.reach(100);
  b.write(100, "disk full");
  EXPECT_EQ(b.c.phase(), v1::PHASE_FAILED);
  EXPECT_EQ(b.c.failure(), "the last checkpoint (step 100) could not be written: ps-0: disk full");
}

TEST(CoordinatorStop, AllRestAtOneVersionWhichIsCommitted) {
  Bench b;
  b.activate();
  b.write(0);
  b.commit();
  b.reach(7);
  b.c.requestStop(b.now);
  b.take();
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_STOPPING);
  EXPECT_EQ(b.last_view.stop_at(), -1);
  // Step 7 was under way: one rests after it while the other has not yet got its answers.
  b.worker(1).mutable_worker()->set_version(8);
  b.worker(1).mutable_worker()->set_idle(true);
  b.settle();
  EXPECT_EQ(b.last_view.stop_at(), -1);
  b.worker(0).mutable_worker()->set_version(8);
  b.settle();
  EXPECT_EQ(b.last_view.stop_at(), 8);
  EXPECT_EQ(b.last_view.checkpoint_at(), -1);
  Bench::setShard(b.ps(), 8);
  b.write(8);
  ASSERT_EQ(b.commits.size(), 2u);
  EXPECT_EQ(b.commits[1].step, 8);
  EXPECT_EQ(b.c.phase(), v1::PHASE_STOPPING);
  b.commit();
  EXPECT_EQ(b.c.phase(), v1::PHASE_STOPPED);
  EXPECT_EQ(b.c.progress(b.now).outcome(), "stopped");
  EXPECT_EQ(b.c.progress(b.now).lost_steps(), 0);
  EXPECT_TRUE(b.c.finished(b.now));
}

TEST(CoordinatorStop, WithNothingNewThereIsNothingToWrite) {
  Bench b;
  b.activate();
  b.write(0);
  b.commit();
  b.c.requestStop(b.now);
  b.take();
  for (std::uint32_t i = 0; i < 2; ++i) b.worker(i).mutable_worker()->set_idle(true);
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_STOPPED);
  EXPECT_EQ(b.commits.size(), 1u);
}

TEST(CoordinatorStop, BeforeAnyoneComputedItStopsAtOnce) {
  Bench b;
  b.say(b.worker(0));
  b.c.requestStop(b.now);
  EXPECT_EQ(b.c.phase(), v1::PHASE_STOPPED);
}

TEST(CoordinatorStop, TooLateItStopsWithoutANewCheckpoint) {
  Bench b;
  b.activate();
  b.write(0);
  b.commit();
  b.reach(9);
  b.c.requestStop(b.now, seconds(4));
  b.take();
  b.tick(milliseconds(3999));
  EXPECT_EQ(b.c.phase(), v1::PHASE_STOPPING);
  b.tick(milliseconds(1));
  EXPECT_EQ(b.c.phase(), v1::PHASE_STOPPED);
  EXPECT_EQ(b.c.progress(b.now).lost_steps(), 9);
  EXPECT_EQ(b.c.progress(b.now).step(), 0) << "from where it goes on";
  EXPECT_EQ(b.logged("stopped without a new checkpoint: the servers did not get ready in 4 s"), 1);
}

// Nobody is heard of meanwhile, as when a member hangs.
TEST(CoordinatorStop, WhoeverDoesNotSayHowLongGivesItAMinute) {
  Bench b;
  b.activate();
  b.write(0);
  b.commit();
  b.reach(9);
  b.c.requestStop(b.now);
  b.take();
  b.tick(milliseconds(59'999));
  EXPECT_EQ(b.c.phase(), v1::PHASE_SEALING);
  b.tick(milliseconds(1));
  EXPECT_EQ(b.c.phase(), v1::PHASE_STOPPED);
}

TEST(CoordinatorStop, TheEarliestEndThatIsAskedForCounts) {
  Bench b;
  b.activate();
  b.reach(9);
  b.c.requestStop(b.now, seconds(600));
  b.take();
  b.tick(seconds(1));
  b.c.requestStop(b.now, seconds(3));
  b.c.requestStop(b.now, seconds(500));  // told anew
  b.tick(milliseconds(2999));
  EXPECT_EQ(b.c.phase(), v1::PHASE_STOPPING);
  b.tick(milliseconds(1));
  EXPECT_EQ(b.c.phase(), v1::PHASE_STOPPED);
  EXPECT_EQ(b.logged("did not get ready in 4 s"), 1);
}

TEST(CoordinatorStop, AShardThatCannotBeWrittenFailsTheStop) {
  Bench b;
  b.activate();
  b.reach(9);
  b.c.requestStop(b.now);
  b.take();
  for (std::uint32_t i = 0; i < 2; ++i) b.worker(i).mutable_worker()->set_idle(true);
  b.settle();
  ASSERT_EQ(b.last_view.stop_at(), 9);
  b.write(9, "disk full");
  EXPECT_EQ(b.c.phase(), v1::PHASE_FAILED);
}

TEST(CoordinatorEnd, NeedsTheLastCheckpointTheEvaluationAndItsRecord) {
  Bench b;
  b.activate();
  b.reach(100);
  EXPECT_TRUE(b.commits.empty());
  b.write(100);
  b.commit();
  EXPECT_TRUE(b.finishes.empty());
  b.evaluated(0, 100, 30, 1);
  b.settle();
  EXPECT_TRUE(b.finishes.empty());
  b.evaluated(1, 100, 45, 1);
  b.settle();
  ASSERT_EQ(b.finishes.size(), 1u);
  EXPECT_EQ(b.finishes[0].steps, 100);
  EXPECT_EQ(b.finishes[0].evaluation.hits(), 75);
  EXPECT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
  b.c.onFinishRecorded(absl::OkStatus(), b.now);
  b.take();
  EXPECT_EQ(b.c.phase(), v1::PHASE_DONE);
  EXPECT_EQ(b.c.progress(b.now).outcome(), "succeeded");
  // finished() waits for all, but not for ever.
  EXPECT_FALSE(b.c.finished(b.now));
  b.say(b.ps());
  b.say(b.worker(0));
  b.say(b.ps());
  b.say(b.worker(0));
  EXPECT_FALSE(b.c.finished(b.now));
  EXPECT_FALSE(b.c.finished(b.now + seconds(29)));
  EXPECT_TRUE(b.c.finished(b.now + seconds(30)));
  b.settle();
  EXPECT_TRUE(b.c.finished(b.now));
  EXPECT_EQ(b.finishes.size(), 1u);
}

TEST(CoordinatorEnd, WhoLeavesIsAnsweredAtOnce) {
  Bench b;
  b.activate();
  b.c.requestStop(b.now, seconds(4));
  b.tick(seconds(4));
  ASSERT_EQ(b.c.phase(), v1::PHASE_STOPPED);
  b.say(b.worker(0));
  ASSERT_TRUE(b.worker(0).leaving());
  EXPECT_TRUE(b.reply(b.send(b.worker(0))).has_value());
}

TEST(CoordinatorEnd, WithoutEvaluationDataThereIsNoScoreToWaitFor) {
  Bench b;
  for (std::uint32_t i = 0; i < 2; ++i) b.worker(i).mutable_data()->set_eval_samples(0);
  b.activate();
  b.reach(100);
  b.write(100);
  b.commit();
  EXPECT_EQ(b.finishes.size(), 1u);
}

TEST(CoordinatorEnd, ARecordThatFailsIsSaidAndTheJobIsDone) {
  Bench b;
  for (std::uint32_t i = 0; i < 2; ++i) b.worker(i).mutable_data()->set_eval_samples(0);
  b.activate();
  b.reach(100);
  b.write(100);
  b.commit();
  b.c.onFinishRecorded(absl::ResourceExhaustedError("disk full"), b.now);
  b.take();
  EXPECT_EQ(b.c.phase(), v1::PHASE_DONE);
  EXPECT_EQ(b.logged("the end is not recorded: disk full"), 1);
}

TEST(CoordinatorEnd, AJobThatWasOverTellsThoseWhoComeLate) {
  Bench b(1, 1, [](CoordinatorConfig& c) {
    c.finished.emplace();
    c.finished->set_version(100);
    c.finished->set_hits(9);
    c.finished->set_samples(10);
  });
  EXPECT_EQ(b.c.phase(), v1::PHASE_DONE);
  b.settle();
  EXPECT_EQ(b.last_view.phase(), v1::PHASE_DONE);
  EXPECT_EQ(b.last_view.evaluation().hits(), 9);
  EXPECT_TRUE(b.c.finished(b.now));
  EXPECT_EQ(b.c.progress(b.now).step(), 100);
}

}  // namespace
}  // namespace trainyard::runtime
