// The coordinator tells of all who take part: who is asked beside it, and when what it says counts.
#include "tests/operator/progress/fake_agents.h"

namespace trainyard::control {

class CoordinatorsWordTest : public testing::Test {
 protected:
  CoordinatorsWordTest() {
    directory_.set({worker_.endpoint(), ps_.endpoint()});
    progress_.watch([this](const JobKey&) { ++changes_; });
    want(1);
    ps_.change([](v1::TaskState* state) { state->set_child("Running"); });
  }
  void poll() { EXPECT_TRUE(progress_.pollOnce(kJob).ok()); }
  static JobWish wishFor(std::int64_t revision) {
    JobWish wish;
    wish.membership.emplace().set_revision(revision);
    return wish;
  }
  void want(std::int64_t revision) { progress_.follow(kJob, "uid", wishFor(revision)); }
  // The coordinator has heard of worker-0.
  void hear(std::uint32_t created, std::uint32_t start, std::int64_t revision) {
    ps_.change([&](v1::TaskState* state) {
      state->mutable_report()->clear_heard();
      v1::HeardTask* const heard = state->mutable_report()->add_heard();
      heard->mutable_id()->set_role(kWorker0.role);
      heard->mutable_id()->set_index(kWorker0.index);
      heard->set_created(created);
      heard->set_start(start);
      heard->set_revision(revision);
      v1::HeardTask* const self = state->mutable_report()->add_heard();
      *self = *heard;
      self->mutable_id()->set_role(kPs0.role);
      self->set_created(1);
      self->set_start(0);
    });
  }
  // How often the worker's agent is asked in so many rounds.
  int asked(int rounds) {
    const int before = worker_.questions();
    for (int round = 0; round < rounds; ++round) poll();
    return worker_.questions() - before;
  }

  FakeAgent ps_{kPs0, 1};
  FakeAgent worker_{kWorker0, 1};
  FakeDirectory directory_;
  int changes_ = 0;
  GrpcProgress progress_{directory_,
                         {.interval = std::chrono::hours(1),
                          .timeout = std::chrono::seconds(5),
                          .ask_coordinator_only = true,
                          .progress_every = {}}};
};

TEST_F(CoordinatorsWordTest, OthersAreAskedWhileItDoesNotTellOfThem) {
  EXPECT_EQ(asked(1), 0) << "it might have";
  EXPECT_EQ(asked(3), 3);
  EXPECT_EQ(worker_.pushed(), 1);
  hear(1, 1, 1);
  poll();
  EXPECT_EQ(asked(5), 0);
}

TEST_F(CoordinatorsWordTest, WithoutAMembershipNobodyElseIsAsked) {
  progress_.follow(kJob, "another", {});
  EXPECT_EQ(asked(3), 0);
  progress_.follow(kJob, "another", wishFor(1));
  EXPECT_EQ(asked(1), 1);
  EXPECT_EQ(worker_.pushed(), 1);
}

TEST_F(CoordinatorsWordTest, StandsForTheAgentsOwn) {
  hear(1, 1, 1);
  EXPECT_EQ(asked(3), 0) << "an operator that has just begun connects to one task of a job";
  EXPECT_EQ(progress_.newest(kJob).tasks[kWorker0].start(), 1u);
  poll();
  const int before = changes_;
  hear(1, 2, 1);
  EXPECT_EQ(asked(1), 0);
  EXPECT_EQ(progress_.newest(kJob).tasks[kWorker0].start(), 2u);
  EXPECT_EQ(changes_, before + 1);
  poll();
  EXPECT_EQ(changes_, before + 1);
}

TEST_F(CoordinatorsWordTest, OnlyTheConnectionToItIsKept) {
  GrpcProgress progress(directory_, {.interval = std::chrono::hours(1),
                                     .timeout = std::chrono::seconds(5),
                                     .ask_coordinator_only = true,
                                     .idle = Duration::zero()});
  const auto polls = [&](std::int64_t revision) {
    progress.follow(kJob, "uid", wishFor(revision));
    for (int round = 0; round < 3; ++round) EXPECT_TRUE(progress.pollOnce(kJob).ok());
    hear(1, 1, revision);
    for (int round = 0; round < 3; ++round) EXPECT_TRUE(progress.pollOnce(kJob).ok());
  };
  polls(1);
  polls(2);
  EXPECT_GT(worker_.connections(), 1u);
  EXPECT_EQ(ps_.connections(), 1u);
}

TEST_F(CoordinatorsWordTest, WhoLacksAMembershipIsToldItself) {
  hear(1, 1, 1);
  poll();
  want(2);
  EXPECT_EQ(asked(1), 1);
  EXPECT_EQ(worker_.pushed(), 2);
  hear(1, 1, 2);
  poll();
  EXPECT_EQ(asked(3), 0);
}

TEST_F(CoordinatorsWordTest, OfAnotherLifeItIsNothing) {
  hear(2, 1, 1);
  poll();
  EXPECT_EQ(asked(3), 3);
}

TEST_F(CoordinatorsWordTest, OfAProcessThatDoesNotRunItIsTooOld) {
  hear(1, 1, 1);
  ps_.change([](v1::TaskState* state) { state->set_child("Exited"); });
  poll();
  EXPECT_EQ(asked(3), 3);
}

TEST_F(CoordinatorsWordTest, HoldsForSomeRounds) {
  GrpcProgress progress(directory_, {.interval = std::chrono::milliseconds(1),
                                     .ask_coordinator_only = true,
                                     .word_holds = std::chrono::milliseconds(20)});
  progress.follow(kJob, "uid", wishFor(1));
  hear(1, 1, 1);
  EXPECT_TRUE(progress.pollOnce(kJob).ok());
  ps_.silence(true);
  const int before = worker_.questions();
  EXPECT_TRUE(
      eventually([&] { return progress.pollOnce(kJob).ok() && worker_.questions() > before; }));
}

TEST_F(CoordinatorsWordTest, OneThatDoesNotAnswerIsWaitedForAWhile) {
  GrpcProgress progress(directory_, {.interval = std::chrono::milliseconds(1),
                                     .ask_coordinator_only = true,
                                     .coordinator_late = std::chrono::hours(1)});
  progress.follow(kJob, "uid", wishFor(1));
  ps_.silence(true);
  const auto polls = [&](int rounds) {
    for (int round = 0; round < rounds; ++round) EXPECT_TRUE(progress.pollOnce(kJob).ok());
  };
  polls(40);
  EXPECT_EQ(worker_.questions(), 0);
  ps_.silence(false);
  polls(40);
  EXPECT_GT(worker_.questions(), 0);
  EXPECT_EQ(worker_.pushed(), 1);
}

// An operator that has just begun has no room for all connections at once.
TEST_F(CoordinatorsWordTest, OneThatHasNotBeenAskedIsNotLate) {
  GrpcProgress progress(directory_, {.interval = std::chrono::milliseconds(1),
                                     .ask_coordinator_only = true,
                                     .coordinator_late = Duration(0)});
  progress.follow(kJob, "uid", wishFor(1));
  ps_.silence(true);
  EXPECT_TRUE(progress.pollOnce(kJob).ok());
  EXPECT_EQ(worker_.questions(), 0);
  EXPECT_TRUE(progress.pollOnce(kJob).ok());
  EXPECT_EQ(worker_.questions(), 1) << "it was asked in vain";
}

// Without a server worker-0 has the coordinator.
TEST_F(CoordinatorsWordTest, OfARingIsTheFirstWorkers) {
  FakeAgent second({v1::ROLE_WORKER, 1}, 1);
  directory_.set({second.endpoint(), worker_.endpoint()});
  poll();
  EXPECT_EQ(second.questions(), 0);
  EXPECT_EQ(worker_.questions(), 1);
  poll();
  EXPECT_EQ(second.questions(), 1);
}

// Its thread asks each job again at its pace.
TEST(PaceOfJobsTest, JobsOfWhichNothingIsExpectedAreAskedLessOften) {
  FakeAgent ps(kPs0, 1);
  FakeDirectory directory;
  directory.set({ps.endpoint()});
  sayStep(ps, 1);
  GrpcProgress progress(directory, {.interval = std::chrono::milliseconds(1),
                                    .timeout = std::chrono::seconds(5),
                                    .calm_rounds_per_second = 1.0 / 3600});
  JobWish wish;
  wish.membership.emplace().set_revision(1);
  progress.follow(kJob, "uid", wish);
  progress.start();
  ASSERT_TRUE(eventually([&] { return ps.pushed() == 1 && ps.questions() >= 2; }));
  const int then = ps.questions();
  FakeAgent other(kPs0, 1);  // of an operator with nothing else to do
  FakeDirectory others;
  others.set({other.endpoint()});
  GrpcProgress beside(others, {.interval = std::chrono::milliseconds(1)});
  beside.follow(kJob, "uid", wish);
  beside.start();
  ASSERT_TRUE(eventually([&] { return other.questions() >= 50; }));
  EXPECT_LE(ps.questions(), then + 1);
  wish.last_word = true;
  progress.follow(kJob, "uid", wish);
  EXPECT_TRUE(eventually([&] { return ps.questions() >= then + 20; })) << "it is waited for";
  progress.stop();
}

// Each is a reconcile of the whole job.
TEST_F(CoordinatorsWordTest, HowFarAJobIsIsToldOfNowAndThen) {
  GrpcProgress progress(directory_, {.progress_every = std::chrono::hours(1)});
  int changes = 0;
  progress.watch([&](const JobKey&) { ++changes; });
  progress.follow(kJob, "uid", {});
  const auto round = [&] { EXPECT_TRUE(progress.pollOnce(kJob).ok()); };
  sayStep(ps_, 1);
  round();
  ASSERT_EQ(changes, 1);
  for (int step = 2; step < 10; ++step) {
    sayStep(ps_, step);
    round();
    EXPECT_EQ(progress.newest(kJob).progress->step(), step);
  }
  EXPECT_EQ(changes, 1);
  sayStep(ps_, 10, "succeeded");
  round();
  EXPECT_EQ(changes, 2) << "its end";
}

// Of all jobs together: what one has written must not add to what others do.
TEST_F(CoordinatorsWordTest, SoManyJobsASecondAreToldToWriteTheirProgress) {
  GrpcProgress progress(directory_, {.progress_every = {}, .progress_per_second = 1.0 / 3600});
  int may = 0;
  for (int i = 0; i < 10; ++i) {
    const JobKey key{"default", fmt::format("job-{}", i)};
    progress.follow(key, "uid", {});
    sayStep(ps_, i);
    EXPECT_TRUE(progress.pollOnce(key).ok());
    EXPECT_EQ(progress.newest(key).progress->step(), i) << "heard of all the same";
    may += progress.newest(key).progress_due ? 1 : 0;
  }
  EXPECT_EQ(may, 5) << "of a burst";
}

}  // namespace trainyard::control
