// Who takes part, and which state an epoch starts from.
#include "gmock/gmock.h"
#include "tests/runtime/coordinator/bench.h"

namespace trainyard::runtime {
namespace {

using testing::HasSubstr;

Manifest checkpoint(std::int64_t step, std::int64_t epoch) {
  Manifest m;
  m.job_uid = "uid-1";
  m.step = step;
  m.epoch = epoch;
  m.position = step * 20;
  m.epochs = {{epoch, 0, 0, 2, 20}};
  return m;
}

TEST(CoordinatorEpoch, TheFirstWaitsForAllAndStartsFromTheSeed) {
  Bench b(2, 2);
  const v1::MemberReport absent = b.worker(1);
  b.reports.erase({v1::ROLE_WORKER, 1});
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_SEALING);
  EXPECT_EQ(b.c.waitingFor(b.now), "worker-1");
  b.reports[{v1::ROLE_WORKER, 1}] = absent;
  b.prepares = false;
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_PREPARING);
  EXPECT_EQ(b.c.waitingFor(b.now), "ps-0, ps-1");
  EXPECT_EQ(b.last_view.waiting_for(), "ps-0, ps-1");
  EXPECT_TRUE(b.last_view.epoch().fresh());
  EXPECT_EQ(b.last_view.epoch().epoch(), 1);
  ASSERT_EQ(b.last_view.epoch().members_size(), 4);
  EXPECT_EQ(b.last_view.epoch().members(3).rank(), 1u);
  EXPECT_EQ(b.last_view.epoch().members(3).id().role(), v1::ROLE_WORKER);
  b.prepares = true;
  for (std::uint32_t i = 0; i < 2; ++i) b.ps(i).set_seen_view(0);
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
  EXPECT_EQ(b.c.progress(b.now).epoch(), 1);
  EXPECT_EQ(b.c.progress(b.now).resumed_from_step(), -1);
}

struct Refusal {
  const char* name;
  void (*change)(v1::MemberReport&);
  const char* why;
};
class RefusalTest : public testing::TestWithParam<Refusal> {};

TEST_P(RefusalTest, SaysWhyAndTheMemberDoesNotCount) {
  Bench b;
  b.say(b.worker(0));
  v1::MemberReport report = b.worker(1);
  GetParam().change(report);
  const auto view = b.reply(b.send(report));
  ASSERT_TRUE(view.has_value());
  EXPECT_THAT(view->refusal(), HasSubstr(GetParam().why));
  EXPECT_EQ(b.c.phase(), v1::PHASE_SEALING);
  EXPECT_THAT(b.c.waitingFor(b.now), HasSubstr("worker-1"));
}

INSTANTIATE_TEST_SUITE_P(
    CoordinatorEpoch, RefusalTest,
    testing::Values(
        Refusal{"OtherJob", [](v1::MemberReport& r) { r.set_job_uid("x"); },
                "worker-1 belongs to another job"},
        Refusal{"ProtocolTooNew",
                [](v1::MemberReport& r) { r.set_protocol_min(9), r.set_protocol_max(10); },
                "worker-1 speaks protocol 9 to 10, this job speaks 8"},
        Refusal{"ProtocolTooOld",
                [](v1::MemberReport& r) { r.set_protocol_min(0), r.set_protocol_max(0); },
                "worker-1 speaks protocol 0 to 0, this job speaks 8"},
        Refusal{"Digest", [](v1::MemberReport& r) { r.set_job_digest("other"); },
                "worker-1 was started with other training settings"},
        Refusal{"Data",
                [](v1::MemberReport& r) { r.mutable_data()->set_sha256("fedcba9876543210"); },
                "worker-1 has other data than worker-0: 1000 training and 100 evaluation samples, "
                "sha256 "
                "fedcba987654 against 1000 and 100, 0123456789ab"},
        Refusal{"UnknownIndex", [](v1::MemberReport& r) { r.mutable_id()->set_index(9); },
                "worker-9 is not in membership revision 1"}),
    [](const auto& p) { return p.param.name; });

TEST(CoordinatorEpoch, AMemberOfANewerMembershipIsAskedToComeAgain) {
  Bench b;
  v1::MemberReport report = b.worker(1);
  report.mutable_id()->set_index(9);
  report.set_revision(2);
  const auto view = b.reply(b.send(report));
  ASSERT_TRUE(view.has_value());
  EXPECT_EQ(view->refusal(), "");
}

TEST(CoordinatorEpoch, AnOlderProcessIsToldThatItWasReplaced) {
  Bench b;
  b.activate();
  const v1::MemberReport old = b.worker(0);
  b.restart(b.worker(0));
  b.say(b.worker(0));
  const auto view = b.reply(b.send(old));
  ASSERT_TRUE(view.has_value());
  EXPECT_THAT(view->refusal(), HasSubstr("replaced by a newer process"));
}

TEST(CoordinatorEpoch, AReportWaitsForNewsAtMostAHeartbeat) {
  Bench b;
  b.activate();
  const auto waiting = b.send(b.worker(0));
  b.tick(std::chrono::milliseconds(999));
  EXPECT_FALSE(b.reply(waiting).has_value());
  b.tick(std::chrono::milliseconds(1));
  EXPECT_TRUE(b.reply(waiting).has_value());
  const auto older = b.send(b.worker(0));
  const auto newer = b.send(b.worker(0));
  EXPECT_TRUE(b.reply(older).has_value());  // the newer one takes its place
  EXPECT_FALSE(b.reply(newer).has_value());
  b.c.requestStop(b.now);
  b.take();
  ASSERT_TRUE(b.reply(newer).has_value());  // news
  EXPECT_EQ(b.reply(newer)->phase(), v1::PHASE_STOPPING);
}

TEST(CoordinatorEpoch, WhoIsSilentForFiveSecondsIsDead) {
  Bench b;
  b.activate();
  b.now += std::chrono::seconds(5);
  b.say(b.ps());
  b.say(b.worker(0));
  b.tick();
  EXPECT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
  b.tick(std::chrono::milliseconds(1));
  EXPECT_EQ(b.c.phase(), v1::PHASE_SEALING);
  EXPECT_EQ(b.logged("epoch 1 ends: worker-1 has not been heard of for 5 s"), 1);
  EXPECT_EQ(b.c.waitingFor(b.now), "ps-0, worker-0, worker-1");
  b.settle();  // it was only away
  EXPECT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
  EXPECT_EQ(b.c.progress(b.now).epoch(), 2);
}

TEST(CoordinatorEpoch, AHigherIncarnationBeginsAnEpochFromWhatTheServersHold) {
  Bench b(2, 2);
  b.activate();
  b.reach(7);
  Bench::setShard(b.ps(1), 7, 8);
  b.restart(b.worker(1));
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
  const v1::EpochInfo& epoch = b.last_view.epoch();
  EXPECT_EQ(epoch.epoch(), 2);
  EXPECT_EQ(epoch.first_step(), 7);
  EXPECT_EQ(epoch.first_position(), 7 * 2 * 10);
  EXPECT_FALSE(epoch.fresh());
  EXPECT_EQ(epoch.restore_manifest(), "");
  EXPECT_EQ(epoch.members(3).incarnation().start(), 2u);
  EXPECT_EQ(b.last_view.lost_steps(), 0);
}

TEST(CoordinatorEpoch, AnEmptyServerMakesAllReturnToTheCheckpoint) {
  Bench b(2, 2, nullptr, checkpoint(40, 3));
  b.activate();
  EXPECT_EQ(b.last_view.epoch().epoch(), 4);
  EXPECT_EQ(b.last_view.epoch().first_step(), 40);
  EXPECT_EQ(b.last_view.epoch().first_position(), 800);
  EXPECT_EQ(b.last_view.epoch().restore_manifest(), checkpoint(40, 3).fileName());
  EXPECT_EQ(b.c.progress(b.now).resumed_from_step(), 40);
  b.reach(52);
  b.restart(b.ps(1));
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
  EXPECT_EQ(b.last_view.epoch().epoch(), 5);
  EXPECT_EQ(b.last_view.epoch().first_step(), 40);
  EXPECT_EQ(b.last_view.lost_steps(), 12);
  EXPECT_EQ(b.c.progress(b.now).step(), 40);
}

TEST(CoordinatorEpoch, WithoutCheckpointItStartsAgainFromTheSeed) {
  Bench b;
  b.activate();
  b.reach(5);
  b.restart(b.ps());
  b.settle();
  EXPECT_TRUE(b.last_view.epoch().fresh());
  EXPECT_EQ(b.last_view.epoch().first_step(), 0);
  EXPECT_EQ(b.last_view.lost_steps(), 5);
}

// Who published the membership knows how far they had come.
TEST(CoordinatorEpoch, CountsWhatWasLostWithALifeThatNobodySurvived) {
  for (const bool checkpointed : {true, false}) {
    Bench b(1, 2, nullptr, checkpointed ? std::optional(checkpoint(40, 3)) : std::nullopt);
    v1::Membership told = members(1, 2, 2);
    told.set_reached(52);
    told.set_lost_steps(3);
    b.c.setMembership(told, b.now);
    const v1::JobProgress waiting = b.c.progress(b.now);
    EXPECT_EQ(waiting.step(), 52) << "of which a membership may be made before the first epoch";
    EXPECT_EQ(waiting.lost_steps(), 3);
    b.activate();
    EXPECT_EQ(b.last_view.epoch().first_step(), checkpointed ? 40 : 0);
    EXPECT_EQ(b.c.progress(b.now).step(), checkpointed ? 40 : 0);
    EXPECT_EQ(b.last_view.lost_steps(), 3 + (checkpointed ? 12 : 52));
    // Only once.
    b.reach(b.last_view.epoch().first_step() + 2);
    b.restart(b.ps());
    b.settle();
    EXPECT_EQ(b.last_view.lost_steps(), 3 + (checkpointed ? 12 : 52) + 2);
  }
}

// A damaged checkpoint keeps its name: one of the same step and epoch could not be committed.
TEST(CoordinatorEpoch, IsNumberedAboveCheckpointsThatAreLeftOut) {
  Bench b(1, 2, [](CoordinatorConfig& c) { c.used_epoch = 4; });
  b.settle();
  EXPECT_TRUE(b.last_view.epoch().fresh());
  EXPECT_EQ(b.last_view.epoch().epoch(), 5);
  Bench older(
      1, 2, [](CoordinatorConfig& c) { c.used_epoch = 4; }, checkpoint(40, 3));
  older.settle();
  EXPECT_EQ(older.last_view.epoch().first_step(), 40);
  EXPECT_EQ(older.last_view.epoch().epoch(), 5);
}

TEST(CoordinatorEpoch, ANewCoordinatorNumbersAboveAllThatMembersHaveSeen) {
  Bench b(
      1, 2, [](CoordinatorConfig& c) { c.self = incarnation(1, 2); }, checkpoint(40, 3));
  // The workers took part in epoch 9 of the former coordinator.
  for (std::uint32_t i = 0; i < 2; ++i) {
    b.worker(i).set_highest_epoch(9);
    b.worker(i).set_sealed_epoch(9);
    b.worker(i).set_seen_view(1000);
    *b.worker(i).mutable_seen_coordinator() = incarnation(1, 1);
    b.worker(i).mutable_worker()->set_version(44);
  }
  b.activate();
  EXPECT_EQ(b.last_view.epoch().epoch(), 10);
  EXPECT_EQ(b.last_view.epoch().first_step(), 40);
  EXPECT_EQ(b.last_view.lost_steps(), 4);
}

TEST(CoordinatorEpoch, ASealUnderAFormerCoordinatorIsNotASeal) {
  Bench b(1, 1, [](CoordinatorConfig& c) { c.self = incarnation(1, 2); });
  b.worker().set_highest_epoch(1);
  b.worker().set_sealed_epoch(1);
  *b.worker().mutable_seen_coordinator() = incarnation(1, 1);
  b.activate();
  EXPECT_EQ(b.last_view.epoch().epoch(), 2);
}

TEST(CoordinatorEpoch, AHigherMembershipBeginsAnEpochWithItsTasks) {
  Bench b(1, 2);
  b.activate();
  b.reach(10);
  b.c.setMembership(members(1, 1, 1), b.now);  // not higher
  b.tick();
  EXPECT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
  b.c.setMembership(members(1, 1, 2), b.now);
  b.activate();
  EXPECT_EQ(b.last_view.epoch().epoch(), 2);
  EXPECT_TRUE(b.worker(1).leaving());
  b.reports.erase({v1::ROLE_WORKER, 1});
  b.activate();
  EXPECT_EQ(b.last_view.epoch().members_size(), 2);
  EXPECT_EQ(b.last_view.epoch().first_step(), 10);
  EXPECT_EQ(b.last_view.epoch().first_position(), 200);
  EXPECT_EQ(b.last_view.epoch().revision(), 2);
  b.reach(14);
  b.restart(b.worker());
  b.activate();
  EXPECT_EQ(b.last_view.epoch().first_position(), 200 + 4 * 10);  // one worker since step 10
}

TEST(CoordinatorEpoch, AServerThatCannotPrepareFailsTheJob) {
  Bench b;
  b.prepares = false;
  b.settle();
  b.ps().mutable_shard()->set_problem("step-40.e3.json: sha256 differs");
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_FAILED);
  EXPECT_EQ(b.c.failure(), "ps-0: step-40.e3.json: sha256 differs");
}

TEST(CoordinatorEpoch, AnAbortFailsTheJobAndEverybodyLeaves) {
  Bench b;
  b.activate();
  b.worker(1).mutable_abort()->set_step(3);
  b.worker(1).mutable_abort()->set_variable("fc1");
  b.worker(1).mutable_abort()->set_reason("the gradient is not finite");
  b.say(b.worker(1));
  EXPECT_EQ(b.c.phase(), v1::PHASE_FAILED);
  EXPECT_EQ(b.c.failure(), "worker-1: step 3, variable fc1: the gradient is not finite");
  EXPECT_EQ(b.c.progress(b.now).outcome(), "failed");
  EXPECT_FALSE(b.c.finished(b.now));
  b.settle();
  EXPECT_TRUE(b.c.finished(b.now));
}

// 2 passes over 1,000 samples, 30 in a step.
void twoPasses(CoordinatorConfig& c) {
  c.steps = 0;
  c.passes = 2;
  c.batch_size = 0;
  c.global_batch_size = 30;
}

TEST(CoordinatorPasses, TheirStepsFollowFromTheSizeOfTheData) {
  Bench b(1, 2, twoPasses);
  EXPECT_EQ(b.c.progress(b.now).steps(), 0) << "nobody has told the size yet";
  b.activate();
  EXPECT_EQ(b.last_view.steps(), 67);
  EXPECT_EQ(b.last_view.epoch().steps(), 67);
  EXPECT_EQ(b.last_view.epoch().end_position(), 2000);
  EXPECT_EQ(b.last_view.epoch().step_samples(), 30);
  EXPECT_EQ(b.c.progress(b.now).steps(), 67);
  b.reach(67);
  b.write(67);
  b.evaluated(0, 67, 30, 1);
  b.evaluated(1, 67, 40, 1);
  b.settle();
  ASSERT_FALSE(b.commits.empty());
  EXPECT_EQ(b.commits.back().step, 67);
  EXPECT_EQ(b.commits.back().position, 2000) << "the last step was short";
  b.commit();
  ASSERT_EQ(b.finishes.size(), 1u);
  EXPECT_EQ(b.finishes[0].steps, 67);
}

TEST(CoordinatorPasses, AnEpochMayBeginWithTheShortStepOrBehindIt) {
  Bench b(1, 2, twoPasses);
  b.activate();
  b.reach(66);
  b.restart(b.worker(1));
  b.activate();
  EXPECT_EQ(b.last_view.epoch().first_step(), 66);
  EXPECT_EQ(b.last_view.epoch().first_position(), 1980);
  EXPECT_EQ(b.last_view.steps(), 67);
  b.reach(67);
  b.restart(b.worker(1));
  b.activate();
  EXPECT_EQ(b.last_view.epoch().first_step(), 67);
  EXPECT_EQ(b.last_view.epoch().first_position(), 2000);
  EXPECT_EQ(b.last_view.steps(), 67);
}

TEST(CoordinatorPasses, AResumedJobKnowsItsStepsFromTheCheckpoint) {
  Manifest m = checkpoint(10, 3);
  m.position = 300;
  m.data_samples = 1000;
  Bench b(1, 2, twoPasses, m);
  EXPECT_EQ(b.c.progress(b.now).steps(), 67);
  b.activate();
  EXPECT_EQ(b.last_view.epoch().first_step(), 10);
  EXPECT_EQ(b.last_view.epoch().first_position(), 300);
  EXPECT_EQ(b.last_view.steps(), 67);
}

TEST(CoordinatorPasses, MorePassesBeginWhereTheFormerEnded) {
  Manifest m = checkpoint(34, 3);  // of one pass: 33 full steps, and one of ten samples
  m.position = 1000;
  m.data_samples = 1000;
  Bench b(1, 2, twoPasses, m);
  b.activate();
  EXPECT_EQ(b.last_view.epoch().first_position(), 1000);
  EXPECT_EQ(b.last_view.steps(), 34 + 34);
}

// Batches of each worker: after the loss of one the rest of the data makes more steps.
TEST(CoordinatorPasses, AnotherNumberOfWorkersMakesAnotherNumberOfSteps) {
  Bench b(1, 2, [](CoordinatorConfig& c) {
    c.steps = 0;
    c.passes = 1;
  });
  b.activate();
  EXPECT_EQ(b.last_view.steps(), 50);
  b.reach(20);
  b.c.setMembership(members(1, 1, 2), b.now);
  b.activate();
  b.reports.erase({v1::ROLE_WORKER, 1});
  b.settle();
  EXPECT_EQ(b.last_view.epoch().first_position(), 400);
  EXPECT_EQ(b.last_view.steps(), 20 + 60);
}

TEST(CoordinatorEpoch, WeightsOfAnotherRunAreForAFreshStartOnly) {
  const auto from = [](CoordinatorConfig& c) { c.init_manifest = "/other/step-9.e1.json"; };
  Bench fresh(1, 2, from);
  fresh.activate();
  EXPECT_TRUE(fresh.last_view.epoch().fresh());
  EXPECT_EQ(fresh.last_view.epoch().init_manifest(), "/other/step-9.e1.json");
  Bench resumed(1, 2, from, checkpoint(40, 3));
  resumed.activate();
  EXPECT_EQ(resumed.last_view.epoch().init_manifest(), "");
  EXPECT_NE(resumed.last_view.epoch().restore_manifest(), "");
}

}  // namespace
}  // namespace trainyard::runtime
