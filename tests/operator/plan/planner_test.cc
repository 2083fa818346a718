// What the scenarios do not show: purity, times of waking, conditions' transition times.
#include "operator/plan/planner.h"

#include <array>

#include "base/core/rfc3339.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "tests/fakes/fake_cluster.h"

namespace trainyard::control {
namespace {

constexpr TaskKey kPs0{v1::ROLE_PS, 0};
constexpr TaskKey kWorker0{v1::ROLE_WORKER, 0};
constexpr TaskKey kWorker1{v1::ROLE_WORKER, 1};

TaskObservation runningTask(const TaskKey& key, std::uint32_t created) {
  TaskObservation task;
  task.key = key;
  task.created = created;
  task.phase = TaskPhase::kRunning;
  task.ready = true;
  task.ip = "10.0.0.1";
  task.port = 2000 + key.index;
  return task;
}

// A job with 1 ps and 2 workers that runs, with its status as the planner writes it.
PlannerInput runningJob() {
  PlannerInput input;
  input.observed.job = fakeJob("job", 1, 2);
  input.observed.job.mutable_spec()->mutable_training()->set_steps(1000);
  input.now = TimePoint(std::chrono::hours(5));
  input.unix_ms = 1'700'000'000'000;
  input.observed.tasks = {runningTask(kPs0, 1), runningTask(kWorker0, 1), runningTask(kWorker1, 1)};
  input.observed.membership = planJob(input).publish;
  for (int round = 0; round < 3; ++round) {
    const Plan plan = planJob(input);
    if (plan.status) *input.observed.job.mutable_status() = *plan.status;
  }
  EXPECT_TRUE(isEmpty(planJob(input)));
  return input;
}

void recordStatus(PlannerInput* input) {
  const Plan plan = planJob(*input);
  ASSERT_TRUE(plan.status.has_value());
  *input->observed.job.mutable_status() = *plan.status;
}

const v1::Condition* condition(const PlannerInput& input, std::string_view type) {
  for (const v1::Condition& c : input.observed.job.status().conditions()) {
    if (c.type() == type) return &c;
  }
  return nullptr;
}

void failTask(PlannerInput* input, std::size_t at, int code) {
  TaskObservation& task = input->observed.tasks[at];
  task.phase = TaskPhase::kFailed;
  task.ready = false;
  task.exit = TaskExit{code, 0, "exit code"};
}

TEST(Planner, SameInputSamePlan) {
  PlannerInput input = runningJob();
  failTask(&input, 1, 1);
  const Plan a = planJob(input), b = planJob(input);
  ASSERT_TRUE(a.status && b.status);
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(*a.status, *b.status));
  EXPECT_EQ(a.deletes.size(), b.deletes.size());
  EXPECT_EQ(a.wake_at, b.wake_at);
}

// Who knows all jobs says when this one may write.
TEST(Planner, ProgressIsWrittenWhenItsSourceSaysSo) {
  PlannerInput input = runningJob();
  input.progress.emplace().set_step(10);
  input.progress_created = 1;
  recordStatus(&input);
  const auto goOn = [&](int seconds) {
    input.now += std::chrono::seconds(seconds);
    input.unix_ms += 1000 * seconds;
    input.progress->set_step(input.progress->step() + 10);
  };
  goOn(3600);
  const Plan before = planJob(input);
  EXPECT_FALSE(before.status.has_value());
  EXPECT_FALSE(before.wake_at.has_value()) << "its source looks at it again";
  input.progress_due = input.now;
  goOn(2);
  recordStatus(&input);
  EXPECT_EQ(input.observed.job.status().progress().step(), 30);
  goOn(60);
  EXPECT_FALSE(planJob(input).status.has_value()) << "once";
  input.progress_due = input.now;
  EXPECT_TRUE(planJob(input).status.has_value());
}

TEST(Planner, ProgressIsNotWrittenTwiceWithinSeconds) {
  PlannerInput input = runningJob();
  input.progress.emplace().set_step(10);
  input.progress_created = 1;
  recordStatus(&input);  // the first word waits for nobody
  input.progress->set_step(20);
  input.unix_ms += 4'000;
  input.progress_due = input.now;
  EXPECT_FALSE(planJob(input).status.has_value());
  input.unix_ms += 1'000;
  EXPECT_TRUE(planJob(input).status.has_value());
}

TEST(Planner, TurnsOfManyJobsAreSpread) {
  std::array<int, 10> jobs{};
  v1::TrainingJob job;
  for (int i = 0; i < 1000; ++i) {
    job.mutable_metadata()->set_uid(fmt::format("8c4a9d0e-{:04}-4b1f-9f0c-0123456789ab", i));
    const Duration turn = turnOf(job, std::chrono::seconds(1));
    EXPECT_EQ(turn, turnOf(job, std::chrono::seconds(1)));
    ++jobs.at(static_cast<std::size_t>(turn / std::chrono::milliseconds(100)));
  }
  for (const int number : jobs) {
    EXPECT_GT(number, 60);
    EXPECT_LT(number, 140);
  }
  EXPECT_EQ(turnOf(job, Duration(0)), Duration(0));
}

// What the coordinator's pod left behind says how the job stopped; its agent was asked before that.
TEST(Planner, AWordFromBeforeTheEndIsNotWrittenDownAfterIt) {
  PlannerInput input = runningJob();
  v1::JobProgress running;
  running.set_step(38);
  running.set_has_checkpoint(true);
  running.set_checkpoint_step(0);
  input.progress = running;
  input.progress_created = 1;
  recordStatus(&input);
  input.observed.job.mutable_spec()->mutable_run_policy()->set_suspend(true);
  input.progress->set_step(40);
  input.progress->set_checkpoint_step(40);
  input.progress->set_outcome("stopped");
  recordStatus(&input);
  input.progress = running;
  input.unix_ms += 60'000;
  for (TaskObservation& task : input.observed.tasks) task.terminating = true;
  recordStatus(&input);
  EXPECT_EQ(input.observed.job.status().checkpoint().step(), 40);
  EXPECT_EQ(input.observed.job.status().progress().step(), 40);
}

TEST(Planner, ADeletedJobsTasksGoUnlessTheyAreToBeOrphans) {
  PlannerInput input = runningJob();
  input.observed.tasks[2].terminating = true;
  for (TaskObservation& task : input.observed.tasks) task.held = true;
  v1::ObjectMeta* meta = input.observed.job.mutable_metadata();
  meta->set_deletion_timestamp("2026-01-31T13:05:09Z");
  const Plan with_all = planJob(input);
  EXPECT_EQ(with_all.deletes.size(), 2u);
  EXPECT_EQ(with_all.releases.size(), 1u);
  meta->add_finalizers("orphan");
  const Plan alone = planJob(input);
  EXPECT_TRUE(alone.deletes.empty());
  EXPECT_EQ(alone.releases.size(), 3u) << "nothing of ours holds them";
  EXPECT_FALSE(alone.status.has_value());
}

TEST(Planner, SaysWhichTaskIsStillOnItsWayOut) {
  PlannerInput input = runningJob();
  TaskObservation& task = input.observed.tasks[2];
  task.terminating = true;
  task.ready = false;
  task.waiting = TaskWait{"Terminating", "on node n1"};
  recordStatus(&input);
  const v1::Condition* reconciling = condition(input, "Reconciling");
  ASSERT_NE(reconciling, nullptr);
  EXPECT_EQ(reconciling->reason(), "TasksNotReady");
  EXPECT_THAT(reconciling->message(),
              testing::HasSubstr("worker-1 (created 1): Terminating: on node n1"));
  EXPECT_TRUE(planJob(input).creates.empty());
}

TEST(Planner, RestsAtRest) {
  const PlannerInput input = runningJob();
  EXPECT_TRUE(isEmpty(planJob(input)));
  EXPECT_FALSE(planJob(input).wake_at.has_value());
}

constexpr TaskKey kWorker2{v1::ROLE_WORKER, 2};
constexpr TaskKey kWorker3{v1::ROLE_WORKER, 3};

// Edits faster than tasks come and go: worker-2 is still on its way out when worker-3 has come
// again. Neither has joined, so that the lower index is the one to stay.
TEST(Planner, ANewcomerLeavesBeforeALowerIndexThatHasYetToCome) {
  PlannerInput input = runningJob();
  input.observed.tasks.push_back(runningTask(kWorker2, 1));
  input.observed.tasks.push_back(runningTask(kWorker3, 2));
  v1::TaskRecord* record = input.observed.job.mutable_status()->add_tasks();
  record->set_task("worker-2");
  record->set_created(2);
  record->set_create_time(formatRfc3339(input.unix_ms + 20'000));  // so long it may take to leave
  input.observed.job.mutable_spec()->mutable_worker()->set_replicas(3);
  Plan plan = planJob(input);
  ASSERT_EQ(plan.deletes.size(), 1u);
  EXPECT_EQ(plan.deletes[0].key, kWorker3);
  EXPECT_EQ(plan.deletes[0].reason, "ScaledDown");
  EXPECT_FALSE(plan.publish.has_value()) << "worker-2 has yet to come";
  recordStatus(&input);
  input.observed.tasks.resize(3);  // worker-2 and worker-3 have gone
  plan = planJob(input);
  ASSERT_EQ(plan.creates.size(), 1u);
  EXPECT_EQ(plan.creates[0].key, kWorker2);
  EXPECT_EQ(plan.creates[0].created, 2u);
  input.observed.tasks.push_back(runningTask(kWorker2, 2));
  plan = planJob(input);
  EXPECT_TRUE(plan.deletes.empty());
  ASSERT_TRUE(plan.publish.has_value());
  EXPECT_EQ(plan.publish->tasks_size(), 4) << "ps-0 and workers 0 to 2";
}

// Nobody of the record is there any more: a job that is launched again, or resumed.
TEST(Planner, AJobThatBeginsAgainWithMoreWorkersWaitsForAllOfThem) {
  PlannerInput input = runningJob();
  input.observed.job.mutable_spec()->mutable_worker()->set_replicas(3);
  input.observed.tasks = {runningTask(kPs0, 2), runningTask(kWorker0, 2), runningTask(kWorker1, 2),
                          runningTask(kWorker2, 1)};
  input.observed.tasks[3].ready = false;
  input.observed.tasks[3].ip.clear();
  EXPECT_FALSE(planJob(input).publish.has_value()) << "worker-2 has no address yet";
  PlannerInput running = input;
  running.observed.tasks[0] = runningTask(kPs0, 1);
  const Plan goes_on = planJob(running);
  ASSERT_TRUE(goes_on.publish.has_value()) << "a job that computes does not wait for newcomers";
  EXPECT_EQ(goes_on.publish->tasks_size(), 3);
  input.observed.tasks[3] = runningTask(kWorker2, 1);
  const Plan plan = planJob(input);
  ASSERT_TRUE(plan.publish.has_value());
  EXPECT_EQ(plan.publish->tasks_size(), 4);
}

// Else the grid of chunks would depend on who comes first.
TEST(Planner, AJobThatBeginsAgainWithFewerTasksWaitsForAllOfThem) {
  PlannerInput input = runningJob();
  input.observed.job.mutable_spec()->mutable_worker()->set_replicas(1);
  input.observed.tasks = {runningTask(kPs0, 2), runningTask(kWorker0, 2)};
  input.observed.tasks[1].ip.clear();
  EXPECT_FALSE(planJob(input).publish.has_value()) << "worker-0 has no address yet";
  input.observed.tasks[1] = runningTask(kWorker0, 2);
  const Plan plan = planJob(input);
  ASSERT_TRUE(plan.publish.has_value());
  EXPECT_EQ(plan.publish->tasks_size(), 2);
  EXPECT_EQ(plan.publish->tasks(1).created(), 2u);
}

// It comes later, and takes its share then; a rule of the placement may name it already.
TEST(Planner, TheGridIsCutForAServerWithoutRoom) {
  PlannerInput input;
  input.observed.job = fakeJob("job", 3, 1);
  input.observed.job.mutable_spec()->mutable_ps()->set_min_replicas(1);
  input.now = TimePoint(std::chrono::hours(5));
  input.unix_ms = 1'700'000'000'000;
  input.observed.tasks = {runningTask(kPs0, 1), runningTask({v1::ROLE_PS, 2}, 1),
                          runningTask(kWorker0, 1)};
  recordStatus(&input);
  EXPECT_FALSE(planJob(input).publish.has_value()) << "it is waited for at first";
  input.unix_ms += 31'000;
  input.now += std::chrono::seconds(31);
  const Plan plan = planJob(input);
  ASSERT_TRUE(plan.publish.has_value());
  EXPECT_EQ(plan.publish->tasks_size(), 3);
  EXPECT_EQ(plan.publish->tasks(1).id().index(), 2u);
  EXPECT_EQ(plan.publish->grid_ps(), 3);
}

// For a coordinator of whose predecessor's time nobody is left.
TEST(Planner, AMembershipTellsHowFarTheJobHasCome) {
  PlannerInput input = runningJob();
  EXPECT_EQ(input.observed.membership->reached(), 0);
  input.progress.emplace().set_step(100);
  input.progress_created = 1;
  recordStatus(&input);
  input.progress->set_step(107);
  input.progress->set_lost_steps(4);
  input.observed.job.mutable_spec()->mutable_training()->set_steps(4321);
  Plan plan = planJob(input);
  ASSERT_TRUE(plan.publish.has_value());
  EXPECT_EQ(plan.publish->reached(), 107);
  EXPECT_EQ(plan.publish->lost_steps(), 4);
  input.progress.reset();
  plan = planJob(input);
  ASSERT_TRUE(plan.publish.has_value());
  EXPECT_EQ(plan.publish->reached(), 100) << "as far as the record goes";
  input.observed.membership = plan.publish;
  input.observed.job.mutable_status()->mutable_progress()->set_step(200);
  EXPECT_FALSE(planJob(input).publish.has_value()) << "it is no change of members";
}

TEST(Planner, AnotherNumberOfStepsIsPublished) {
  PlannerInput input = runningJob();
  const std::int64_t revision = input.observed.membership->revision();
  EXPECT_TRUE(input.observed.membership->has_steps());
  input.observed.job.mutable_spec()->mutable_training()->set_steps(4321);
  const Plan plan = planJob(input);
  ASSERT_TRUE(plan.publish.has_value());
  EXPECT_EQ(plan.publish->steps(), 4321);
  EXPECT_EQ(plan.publish->revision(), revision + 1);
  EXPECT_EQ(plan.publish->tasks_size(), input.observed.membership->tasks_size());
  EXPECT_TRUE(plan.creates.empty());
  EXPECT_TRUE(plan.deletes.empty());
  input.observed.membership = plan.publish;
  EXPECT_FALSE(planJob(input).publish.has_value());
}

// An upgrade of the operator must not disturb jobs whose runtime does not heed a number.
TEST(Planner, ARecordWithoutANumberOfStepsIsLeftAlone) {
  PlannerInput input = runningJob();
  input.observed.membership->clear_steps();
  EXPECT_TRUE(isEmpty(planJob(input)));
}

TEST(Planner, LossIsRecordedBeforeTheNextLifeAndWakesForIt) {
  PlannerInput input = runningJob();
  failTask(&input, 2, 1);
  const Plan lost = planJob(input);
  ASSERT_TRUE(lost.status.has_value());
  EXPECT_EQ(lost.status->restarts(), 1);
  EXPECT_TRUE(lost.creates.empty());
  ASSERT_EQ(lost.deletes.size(), 1u);
  EXPECT_EQ(lost.deletes[0].created, 1u);

  *input.observed.job.mutable_status() = *lost.status;
  input.observed.tasks.pop_back();
  input.unix_ms += 400;
  input.now += std::chrono::milliseconds(400);
  const Plan waiting = planJob(input);
  EXPECT_TRUE(waiting.creates.empty());
  EXPECT_EQ(waiting.wake_at, input.now + std::chrono::milliseconds(600));

  input.unix_ms += 600;
  input.now += std::chrono::milliseconds(600);
  const Plan due = planJob(input);
  ASSERT_EQ(due.creates.size(), 1u);
  EXPECT_EQ(due.creates[0].key, kWorker1);
  EXPECT_EQ(due.creates[0].created, 2u);
}

TEST(Planner, CountsARestartThatTurnsUpAfterTheEnd) {
  PlannerInput input = runningJob();
  TaskObservation& chief = input.observed.tasks[1];
  chief.phase = TaskPhase::kSucceeded;
  chief.ready = false;
  input.progress.emplace().set_outcome("succeeded");
  input.progress_created = 1;
  recordStatus(&input);
  ASSERT_EQ(input.observed.job.status().state(), "Succeeded");
  EXPECT_EQ(input.observed.job.status().restarts(), 0);
  // Killed beside the last checkpoint, started again, and told that all is over.
  input.observed.tasks[2].restarts = 1;
  recordStatus(&input);
  EXPECT_EQ(input.observed.job.status().restarts(), 1);
  EXPECT_EQ(input.observed.job.status().state(), "Succeeded");
  const Plan rest = planJob(input);
  EXPECT_FALSE(rest.status.has_value()) << "counted once";
  EXPECT_TRUE(rest.creates.empty());
}

// A worker that takes part ends its step; one whose agent never started it has none. Who began a
// moment ago has not said so yet, and takes part all the same.
TEST(Planner, WhoNeverBeganIsGivenLittleTimeToLeave) {
  for (const bool began : {true, false}) {
    PlannerInput input = runningJob();
    input.observed.tasks[2].ready = false;
    input.observed.tasks[2].began = began;
    input.observed.job.mutable_spec()->mutable_worker()->set_replicas(1);
    const Plan plan = planJob(input);
    recordStatus(&input);
    ASSERT_TRUE(plan.publish.has_value());
    EXPECT_EQ(plan.publish->tasks_size(), 2);
    EXPECT_TRUE(plan.deletes.empty());
    input.observed.membership = *plan.publish;
    input.unix_ms += 5000;
    EXPECT_EQ(planJob(input).deletes.size(), began ? 0u : 1u);
  }
  PlannerInput input = runningJob();
  input.observed.tasks[2].began = false;  // an answer of its agent from before
  input.observed.job.mutable_spec()->mutable_worker()->set_replicas(1);
  EXPECT_TRUE(planJob(input).deletes.empty()) << "it says that it is ready";
}

TEST(Planner, LostStatusDoesNotReuseANumber) {
  // The status is gone (a damaged record), the membership and the tasks are not.
  PlannerInput input = runningJob();
  input.observed.tasks[2].created = 7;
  input.observed.membership->mutable_tasks(2)->set_created(7);
  input.observed.job.clear_status();
  failTask(&input, 2, 1);
  recordStatus(&input);
  input.observed.tasks.pop_back();
  input.unix_ms += 1000;
  const Plan due = planJob(input);
  ASSERT_EQ(due.creates.size(), 1u);
  EXPECT_EQ(due.creates[0].created, 8u);
}

TEST(Planner, TransitionTimeMovesOnlyWithTheStatus) {
  PlannerInput input = runningJob();
  const std::string since = condition(input, "Running")->last_transition_time();
  input.unix_ms += 60'000;
  input.observed.tasks[1].ready = false;
  recordStatus(&input);
  EXPECT_EQ(condition(input, "Running")->reason(), "TasksNotReady");
  EXPECT_EQ(condition(input, "Running")->last_transition_time(), since);
  EXPECT_NE(condition(input, "Reconciling")->last_transition_time(), since);
}

TEST(Planner, WakesForTheEarliestOfItsTimes) {
  PlannerInput input = runningJob();
  input.observed.job.mutable_spec()->mutable_run_policy()->set_active_deadline_seconds(3600);
  EXPECT_EQ(planJob(input).wake_at, input.now + std::chrono::hours(1));
  failTask(&input, 2, 1);
  recordStatus(&input);
  input.observed.tasks.pop_back();
  EXPECT_EQ(planJob(input).wake_at, input.now + std::chrono::seconds(1)) << "a lost task's";
}

TEST(Planner, WhatProgramsOfUsersTellIsTheWordOfNoTask) {
  PlannerInput input = runningJob();
  input.observed.job.mutable_spec()->clear_training();
  v1::JobProgress progress;
  progress.set_step(10);
  progress.set_has_loss(true);
  progress.set_loss(0.5);
  input.progress = progress;
  input.progress_created = 0;  // there is no coordinator
  const Plan plan = planJob(input);
  ASSERT_TRUE(plan.status.has_value());
  EXPECT_EQ(plan.status->progress().step(), 10);
  EXPECT_EQ(plan.status->progress().loss(), "0.5");
  EXPECT_FALSE(plan.status->progress().has_steps());
}

TEST(Planner, EventsComeOnlyWithAStatus) {
  PlannerInput input = runningJob();
  failTask(&input, 0, 1);
  const Plan plan = planJob(input);
  EXPECT_FALSE(plan.events.empty());
  EXPECT_TRUE(plan.status.has_value());
  EXPECT_TRUE(planJob(runningJob()).events.empty());
}

TEST(Planner, MessageOfManyMissingTasksIsBounded) {
  PlannerInput input;
  input.observed.job = fakeJob("job", 1, 4096);
  const Plan plan = planJob(input);
  EXPECT_EQ(plan.creates.size(), 4097u);
  ASSERT_TRUE(plan.status.has_value());
  for (const v1::Condition& c : plan.status->conditions()) EXPECT_LT(c.message().size(), 200u);
  EXPECT_LT(plan.status->ByteSizeLong(), 2000u);
}

TEST(Planner, StatusOfManyPlainTasksStaysSmall) {
  PlannerInput input;
  input.observed.job = fakeJob("job", 4, 4096);
  for (std::uint32_t i = 0; i < 4096; ++i) {
    input.observed.tasks.push_back(runningTask({v1::ROLE_WORKER, i}, 1));
  }
  const Plan plan = planJob(input);
  ASSERT_TRUE(plan.status.has_value());
  EXPECT_EQ(plan.status->worker().indices(), "0-4095");
  EXPECT_EQ(plan.status->tasks_size(), 0);
}

}  // namespace
}  // namespace trainyard::control
