#include "operator/controller.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <set>

#include "base/core/strings.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "tests/fakes/fake_cluster.h"
#include "tests/fakes/fake_progress.h"

namespace trainyard::control {
namespace {

constexpr TaskKey kFirstPs{v1::ROLE_PS, 0};
constexpr TaskKey kFirstWorker{v1::ROLE_WORKER, 0};
constexpr TaskKey kWorker1{v1::ROLE_WORKER, 1};

class ControllerTest : public testing::Test {
 protected:
  FakeClock clock_;
  FakeCluster cluster_;
  FakeProgress progress_;
};

TEST_F(ControllerTest, ReconcilesOnceWithoutThreads) {
  const JobKey key = cluster_.addJob(fakeJob("job", 1, 1));
  Controller controller(cluster_, progress_, clock_, {});
  ASSERT_TRUE(controller.reconcileOnce(key).ok());
  EXPECT_EQ(cluster_.observe(key)->tasks.size(), 2u);
  EXPECT_EQ(controller.counts().success, 1u);
  EXPECT_EQ(controller.queue().waiting(), 1u) << "what was written is looked at";
}

TEST_F(ControllerTest, JobThatIsGoneIsNoFailureAndIsForgotten) {
  const JobKey key = cluster_.addJob(fakeJob("job", 1, 1));
  Controller controller(cluster_, progress_, clock_, {});
  ASSERT_TRUE(controller.reconcileOnce(key).ok());
  EXPECT_TRUE(progress_.wishOf(key).has_value());
  cluster_.removeJob(key);
  ASSERT_TRUE(controller.reconcileOnce(key).ok());
  EXPECT_FALSE(progress_.wishOf(key).has_value());
}

class NewsKeeper : public ReconcileObserver {
 public:
  void begins(const JobKey&) override {}
  void ended(const ReconcileNews& news) override { last = news; }
  ReconcileNews last;
};

// A job whose pods may not be created, and that is deleted then, has been there all the same.
TEST_F(ControllerTest, TellsOfAStatusThatWasWrittenBeforeAFailure) {
  const JobKey key = cluster_.addJob(fakeJob("job", 1, 1));
  NewsKeeper news;
  ControllerOptions options;
  options.observer = &news;
  Controller controller(cluster_, progress_, clock_, options);
  cluster_.failNext(FakeCall::kCreate, absl::PermissionDeniedError("no service account"));
  EXPECT_EQ(controller.reconcileOnce(key).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(news.last.state_before, "");
  EXPECT_EQ(news.last.state_after, "Created");
  cluster_.failNext(FakeCall::kStatus, absl::UnavailableError("no answer"));
  cluster_.editSpec(key, [](v1::JobSpec* spec) { spec->mutable_worker()->set_replicas(2); });
  EXPECT_FALSE(controller.reconcileOnce(key).ok());
  EXPECT_EQ(news.last.state_after, news.last.state_before) << "nothing was written";
}

// A fleet that starts: the apiserver writes few counts a second, and each change of state.
TEST_F(ControllerTest, CountsOfManyJobsThatStartTakeTurns) {
  std::vector<JobKey> keys;
  for (int i = 0; i < 20; ++i) {
    keys.push_back(cluster_.addJob(fakeJob(fmt::format("job-{}", i), 1, 1)));
  }
  Controller controller(cluster_, progress_, clock_, {});
  ASSERT_TRUE(controller.takeUp().ok());
  controller.runDue();
  const auto become = [&](const TaskKey& task) {
    for (const JobKey& key : keys) {
      cluster_.setAddress(key, task);
      cluster_.setReady(key, task);
    }
    controller.runDue();
  };
  const auto told = [&](const auto& is) {
    return std::count_if(keys.begin(), keys.end(), [&](const JobKey& key) {
      return is(cluster_.observe(key)->job.status());
    });
  };
  const auto tells_of_ps = [](const v1::JobStatus& status) { return status.ps().ready() == 1; };
  become(kFirstPs);
  EXPECT_EQ(told(tells_of_ps), 0) << "they wait for the end of an interval";
  clock_.advance(std::chrono::seconds(10));
  controller.runDue();
  EXPECT_EQ(told(tells_of_ps), 8);
  clock_.advance(std::chrono::seconds(5));
  controller.runDue();
  EXPECT_EQ(told(tells_of_ps), 16);
  become(kFirstWorker);
  EXPECT_EQ(told([](const v1::JobStatus& status) { return status.state() == "Running"; }), 20);
  EXPECT_EQ(told(tells_of_ps), 20);
}

TEST_F(ControllerTest, StartFailsWithTheCluster) {
  cluster_.failNext(FakeCall::kWatch, absl::UnavailableError("no apiserver"));
  Controller controller(cluster_, progress_, clock_, {});
  const Status status = controller.start();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("watch the jobs"));
}

TEST_F(ControllerTest, FailuresOfOneJobDoNotHoldBackAnother) {
  const JobKey a = cluster_.addJob(fakeJob("a", 1, 1));
  const JobKey b = cluster_.addJob(fakeJob("b", 1, 1));
  cluster_.failNext(FakeCall::kStatus, absl::UnavailableError("no answer"));
  Controller controller(cluster_, progress_, clock_, {});
  ASSERT_TRUE(controller.takeUp().ok());
  controller.runDue();
  EXPECT_EQ(cluster_.observe(a)->tasks.size(), 0u);
  EXPECT_EQ(cluster_.observe(b)->tasks.size(), 2u);
  clock_.advance(std::chrono::milliseconds(50));
  controller.runDue();
  EXPECT_EQ(cluster_.observe(a)->tasks.size(), 2u);
  EXPECT_EQ(controller.counts().retry, 1u);
}

TEST_F(ControllerTest, ManyJobsAtRestAreNotWritten) {
  cluster_.setLife({.address_at_create = true, .ready_at_create = true, .slow_delete = false});
  for (int i = 0; i < 100; ++i) cluster_.addJob(fakeJob(fmt::format("job-{}", i), 1, 3));
  Controller controller(cluster_, progress_, clock_, {});
  ASSERT_TRUE(controller.takeUp().ok());
  controller.runDue(10'000);
  const int writes = cluster_.writes();
  for (int minute = 0; minute < 10; ++minute) {
    clock_.advance(std::chrono::minutes(1));
    EXPECT_GE(controller.runDue(10'000), 100) << "each is looked at";
  }
  EXPECT_EQ(cluster_.writes(), writes);
}

// --- Killed at every write

// One life of a job, played to a controller that is replaced whenever it was killed.
class Story {
 public:
  // Returns the final state as text. The first controller dies after `writes` writes (< 0: never).
  std::string play(int writes) {
    v1::TrainingJob job = fakeJob("job", 1, 2);
    cluster_.setLife({.address_at_create = true, .ready_at_create = true, .slow_delete = true});
    key_ = cluster_.addJob(job);
    restart();
    if (writes >= 0) cluster_.dieAfterWrites(writes);
    pass(std::chrono::seconds(1));
    cluster_.killTask(key_, kWorker1, 9);
    pass(std::chrono::seconds(3));
    cluster_.setRestarts(key_, kFirstWorker, 1);
    cluster_.setReady(key_, kFirstWorker);
    pass(std::chrono::seconds(1));
    setSuspend(true);
    pass(std::chrono::seconds(1));
    stopped();
    pass(std::chrono::seconds(1));
    finishDeletes();
    setSuspend(false);
    pass(std::chrono::seconds(1));
    cluster_.exitTask(key_, kFirstWorker, 0);
    pass(std::chrono::seconds(20));
    finishDeletes();
    pass(std::chrono::seconds(1));
    died_ = died_ || cluster_.dead();
    return describe();
  }
  bool died() const { return died_; }

 private:
  void restart() {
    controller_ = std::make_unique<Controller>(cluster_, progress_, clock_, ControllerOptions{});
    ASSERT_TRUE(controller_->takeUp().ok());
  }
  void pass(Duration time) {
    const TimePoint end = clock_.now() + time;
    while (true) {
      controller_->runDue();
      if (cluster_.dead()) {
        died_ = true;
        cluster_.revive();
        restart();
        continue;
      }
      if (clock_.now() >= end) return;
      const auto due = controller_->queue().nextDue();
      clock_.advance(due && *due < end ? std::max(*due - clock_.now(), Duration(0))
                                       : end - clock_.now());
    }
  }
  void setSuspend(bool suspend) {
    cluster_.editSpec(
        key_, [suspend](v1::JobSpec* spec) { spec->mutable_run_policy()->set_suspend(suspend); });
  }
  void stopped() {
    v1::JobProgress progress;
    progress.set_outcome("stopped");
    progress_.say(key_, 1, progress, clock_.now());
  }
  void finishDeletes() {
    const auto observed = cluster_.observe(key_);
    for (const TaskObservation& task : observed->tasks) {
      if (task.terminating) cluster_.finishDelete(key_, task.key);
    }
  }
  std::string describe() {
    const auto observed = cluster_.observe(key_);
    v1::JobStatus status = observed->job.status();
    std::string text =
        fmt::format("{} restarts {} disruptions {} revision {}\n", status.state(),
                    status.restarts(), status.disruptions(), status.membership().revision());
    for (const v1::Condition& c : status.conditions()) {
      text += fmt::format("{} {} {}\n", c.type(), c.status(), c.reason());
    }
    for (const v1::MemberTask& task : observed->membership->tasks()) {
      text += fmt::format("{} {}\n", toString(TaskKey{task.id().role(), task.id().index()}),
                          task.created());
    }
    for (const TaskObservation& task : observed->tasks) {
      text += fmt::format("left: {} {}\n", toString(task.key), task.created);
    }
    return text;
  }

  FakeClock clock_;
  FakeCluster cluster_;
  FakeProgress progress_;
  std::unique_ptr<Controller> controller_;
  JobKey key_;
  bool died_ = false;
};

TEST(ControllerStory, Kill9AtEveryWriteEndsInTheSameState) {
  const std::string undisturbed = Story().play(-1);
  EXPECT_THAT(undisturbed, testing::StartsWith("Succeeded restarts 2 disruptions 0"));
  int killed_at = 0;
  for (;; ++killed_at) {
    ASSERT_LT(killed_at, 200);
    Story story;
    EXPECT_EQ(story.play(killed_at), undisturbed) << "killed after write " << killed_at;
    if (!story.died()) break;
  }
  EXPECT_GT(killed_at, 30);
}

// --- With several threads

// Tells whether two threads ever looked at the same job, and lets looks at different jobs meet.
class MeetingCluster : public FakeCluster {
 public:
  StatusOr<JobObservation> observe(const JobKey& key) override {
    {
      std::unique_lock lock(mutex_);
      if (!inside_.insert(key).second) overlapped = true;
      most_at_once = std::max(most_at_once, inside_.size());
      met_.notify_all();
      // A bound against hangs alone.
      if (wait_for_others) {
        met_.wait_for(lock, std::chrono::seconds(20), [this] { return most_at_once >= 3; });
      }
    }
    auto seen = FakeCluster::observe(key);
    const std::lock_guard lock(mutex_);
    inside_.erase(key);
    return seen;
  }

  std::atomic<bool> overlapped = false;
  std::atomic<bool> wait_for_others = true;
  std::size_t most_at_once = 0;

 private:
  std::mutex mutex_;
  std::condition_variable met_;
  std::set<JobKey> inside_;
};

class LookCounter : public ReconcileObserver {
 public:
  void begins(const JobKey&) override { ++begun; }
  void ended(const ReconcileNews&) override { ++ended_looks; }
  std::atomic<int> begun = 0;
  std::atomic<int> ended_looks = 0;
};

TEST(ControllerThreads, LookAtSeveralJobsSideBySideAndNeverTwiceAtOne) {
  MeetingCluster cluster;
  FakeProgress progress;
  cluster.setLife({.address_at_create = true, .ready_at_create = true, .slow_delete = false});
  std::vector<JobKey> keys;
  for (int i = 0; i < 20; ++i)
    keys.push_back(cluster.addJob(fakeJob(fmt::format("j-{}", i), 1, 3)));
  LookCounter looks;
  ControllerOptions options;
  options.threads = 4;
  options.writes_at_once = 4;
  options.observer = &looks;
  Controller controller(cluster, progress, systemClock(), options);
  ASSERT_TRUE(controller.start().ok());
  const auto allRun = [&] {
    for (const JobKey& key : keys) {
      if (cluster.FakeCluster::observe(key)->job.status().state() != "Running") return false;
    }
    return true;
  };
  const TimePoint end = systemClock().now() + std::chrono::seconds(60);
  while (!allRun() && systemClock().now() < end) {
    // Changes that come while a job is being looked at.
    for (const JobKey& key : keys) controller.queue().add(toString(key));
    std::this_thread::yield();
  }
  EXPECT_TRUE(allRun());
  controller.stop();
  EXPECT_FALSE(cluster.overlapped);
  EXPECT_GE(cluster.most_at_once, 3u);
  EXPECT_GE(looks.begun, 20);
  EXPECT_EQ(looks.begun, looks.ended_looks);
}

// --- With its thread

TEST(ControllerThread, TakesAJobThroughItsLife) {
  FakeCluster cluster;
  FakeProgress progress;
  cluster.setLife({.address_at_create = true, .ready_at_create = true, .slow_delete = false});
  const JobKey key = cluster.addJob(fakeJob("job", 1, 1));
  ControllerOptions options;
  options.queue.retry_base = std::chrono::milliseconds(1);
  Controller controller(cluster, progress, systemClock(), options);
  ASSERT_TRUE(controller.start().ok());
  const auto waitForState = [&](const std::string& state) {
    const TimePoint end = systemClock().now() + std::chrono::seconds(20);
    while (systemClock().now() < end) {
      if (cluster.observe(key)->job.status().state() == state) return true;
      std::this_thread::yield();
    }
    return false;
  };
  ASSERT_TRUE(waitForState("Running"));
  cluster.exitTask(key, kFirstWorker, 0);
  EXPECT_TRUE(waitForState("Succeeded"));
  controller.stop();
  cluster.editSpec(key,
                   [](v1::JobSpec* spec) { spec->mutable_run_policy()->set_backoff_limit(1); });
  EXPECT_EQ(cluster.observe(key)->job.status().observed_generation(), 1) << "it has stopped";
  EXPECT_EQ(cluster.observe(key)->tasks.front().key, kFirstPs);
}

// A cluster in which it takes some time to create a task.
class SlowCluster : public FakeCluster {
 public:
  Status createTask(const v1::TrainingJob& job, const TaskKey& task,
                    std::uint32_t created) override {
    ++calls;
    const TimePoint end = systemClock().now() + std::chrono::milliseconds(2);
    while (systemClock().now() < end) std::this_thread::yield();
    return FakeCluster::createTask(job, task, created);
  }
  std::atomic<int> calls = 0;
};

TEST(ControllerThread, WhatItLeavesOutWhenItEndsIsNoTrouble) {
  SlowCluster cluster;
  FakeProgress progress;
  cluster.addJob(fakeJob("job", 1, 300));
  testing::internal::CaptureStderr();
  Controller controller(cluster, progress, systemClock(), {});
  ASSERT_TRUE(controller.start().ok());
  while (cluster.calls == 0) std::this_thread::yield();
  controller.stop();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::Not(testing::HasSubstr(" W ")));
  EXPECT_LT(cluster.calls, 300);
}

}  // namespace
}  // namespace trainyard::control
