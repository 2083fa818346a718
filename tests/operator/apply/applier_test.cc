#include "operator/apply/applier.h"

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "gmock/gmock.h"
#include "tests/fakes/fake_cluster.h"

namespace trainyard::control {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr TaskKey kPs{v1::ROLE_PS, 0};
constexpr TaskKey kWorkerA{v1::ROLE_WORKER, 0};
constexpr TaskKey kWorkerB{v1::ROLE_WORKER, 1};

class ApplierTest : public testing::Test {
 protected:
  ApplierTest() : key_(cluster_.addJob(fakeJob("job", 1, 2))) {}

  JobObservation observe() { return *cluster_.observe(key_); }
  Status apply(const Plan& plan) { return applier_.apply(observe(), plan).status; }
  // The first words of each trace line.
  std::vector<std::string> trace() {
    std::vector<std::string> lines = cluster_.takeTrace();
    for (std::string& line : lines) line = line.substr(0, line.find_first_of("\n:("));
    return lines;
  }
  static Plan fullPlan() {
    Plan plan;
    plan.status.emplace().set_state("Restarting");
    plan.events = {{"Warning", "TaskLost", "worker-1"}};
    plan.publish.emplace().set_revision(1);
    plan.deletes = {{kWorkerB, 1, "Superseded"}};
    plan.creates = {{kPs, 1}, {kWorkerA, 1}};
    return plan;
  }

  FakeClock clock_;
  FakeCluster cluster_;
  EventRecorder recorder_{cluster_, clock_};
  Applier applier_{cluster_, recorder_};
  JobKey key_;
};

TEST_F(ApplierTest, RecordsBeforeItActs) {
  ASSERT_TRUE(cluster_.createTask(observe().job, kWorkerB, 1).ok());
  Plan plan = fullPlan();
  ASSERT_TRUE(cluster_.publish(observe().job, *plan.publish).ok());
  plan.publish->set_revision(2);
  trace();
  ASSERT_TRUE(apply(plan).ok());
  EXPECT_THAT(trace(), ElementsAre("status", "event Warning TaskLost", "publish revision 2",
                                   "delete worker-1 ", "create ps-0 ", "create worker-0 "));
}

// Whose status tells of it.
TEST_F(ApplierTest, TheFirstMembershipComesBeforeTheStatus) {
  ASSERT_TRUE(cluster_.createTask(observe().job, kWorkerB, 1).ok());
  trace();
  ASSERT_TRUE(apply(fullPlan()).ok());
  EXPECT_THAT(trace(), ElementsAre("publish revision 1", "status", "event Warning TaskLost",
                                   "delete worker-1 ", "create ps-0 ", "create worker-0 "));
}

TEST_F(ApplierTest, ClaimsOfTasksThatAreGoneGoBeforeOthersAreMade) {
  cluster_.editSpec(key_, [](v1::JobSpec* spec) {
    spec->mutable_worker()->add_volume_claim_templates()->mutable_metadata()->set_name("data");
  });
  ASSERT_TRUE(cluster_.createTask(observe().job, kWorkerB, 1).ok());
  trace();
  Plan plan = fullPlan();
  plan.claim_drops = {kWorkerB};
  EXPECT_FALSE(isEmpty(plan));
  ASSERT_TRUE(apply(plan).ok());
  EXPECT_THAT(cluster_.volumeClaims(key_), ElementsAre("data-job-worker-0"));
  EXPECT_THAT(trace(), ElementsAre("publish revision 1", "status", "event Warning TaskLost",
                                   "delete worker-1 ", "drop the volume claims of worker-1",
                                   "create ps-0 ", "create worker-0 "));
}

TEST_F(ApplierTest, EmptyPlanWritesNothing) {
  EXPECT_TRUE(apply(Plan{}).ok());
  EXPECT_EQ(cluster_.writes(), 0);
}

TEST_F(ApplierTest, ConflictOfTheStatusStopsEverything) {
  Plan plan = fullPlan();
  ASSERT_TRUE(cluster_.publish(observe().job, *plan.publish).ok());
  plan.publish->set_revision(2);
  const JobObservation old = observe();
  cluster_.touch(key_);
  trace();
  const Status status = applier_.apply(old, plan).status;
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(failureClass(status), FailureClass::kRetry);
  EXPECT_THAT(trace(), testing::IsEmpty());
}

TEST_F(ApplierTest, ConflictOfTheMembershipStopsTheRest) {
  Plan plan = fullPlan();
  plan.publish->set_revision(5);
  const Status status = apply(plan);
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("revision 5"));
  EXPECT_THAT(trace(), ElementsAre("status", "event Warning TaskLost"));
}

TEST_F(ApplierTest, WhatIsAlreadySoIsAProof) {
  ASSERT_TRUE(cluster_.createTask(observe().job, kPs, 1).ok());
  Plan plan;
  plan.creates = {{kPs, 1}};
  plan.deletes = {{kWorkerB, 3, "Superseded"}};
  EXPECT_TRUE(apply(plan).ok());
}

TEST_F(ApplierTest, FailedDeleteHoldsBackNothing) {
  ASSERT_TRUE(cluster_.createTask(observe().job, kWorkerA, 1).ok());
  ASSERT_TRUE(cluster_.createTask(observe().job, kWorkerB, 1).ok());
  trace();
  cluster_.failNext(FakeCall::kDelete, absl::UnavailableError("no answer"));
  Plan plan;
  plan.deletes = {{kWorkerA, 1, "x"}, {kWorkerB, 1, "x"}};
  plan.creates = {{kPs, 1}};
  const Status status = apply(plan);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("delete worker-0"));
  EXPECT_THAT(trace(), ElementsAre("delete worker-1 ", "create ps-0 "));
}

TEST_F(ApplierTest, FirstFailedCreateEndsTheCreates) {
  cluster_.failNext(FakeCall::kCreate, absl::ResourceExhaustedError("no quota"));
  Plan plan;
  plan.creates = {{kPs, 1}, {kWorkerA, 1}};
  const Status status = apply(plan);
  EXPECT_THAT(std::string(status.message()), HasSubstr("create ps-0"));
  EXPECT_EQ(cluster_.writes(), 0);
}

TEST_F(ApplierTest, ClassOfTheClustersFailureStays) {
  cluster_.failNext(FakeCall::kCreate,
                    withClass(absl::ResourceExhaustedError("no quota"), FailureClass::kRetry));
  Plan plan;
  plan.creates = {{kPs, 1}};
  EXPECT_EQ(failureClass(apply(plan)), FailureClass::kRetry);
}

TEST_F(ApplierTest, LostEventIsNoFailure) {
  cluster_.failNext(FakeCall::kEvent, absl::UnavailableError("no answer"));
  EXPECT_TRUE(apply(fullPlan()).ok());
}

TEST_F(ApplierTest, AppliedTwiceIsHarmless) {
  const Plan plan = fullPlan();
  ASSERT_TRUE(apply(plan).ok());
  const int writes = cluster_.writes();
  Plan again = plan;
  again.status.reset();
  again.events.clear();
  EXPECT_TRUE(apply(again).ok());
  EXPECT_EQ(cluster_.writes(), writes);
}

// Counts creates, and how many of them were under way at the same time.
class CountingCluster : public FakeCluster {
 public:
  Status createTask(const v1::TrainingJob& job, const TaskKey& task,
                    std::uint32_t created) override {
    {
      std::unique_lock lock(mutex_);
      ++calls;
      most_ = std::max(most_, ++under_way_);
      changed_.notify_all();
      // Others may join as long as none is known to be missing; a bound against hangs alone.
      changed_.wait_for(lock, std::chrono::seconds(20), [&] { return most_ >= wanted; });
    }
    const Status status = FakeCluster::createTask(job, task, created);
    const std::lock_guard lock(mutex_);
    --under_way_;
    if (under_way_ == 0) {
      batches.push_back(std::exchange(most_, 0));
      wanted = std::min(4 * wanted, limit);
    }
    return status;
  }

  int calls = 0;
  int wanted = 1;  // in the next batch
  int limit = 1;
  std::vector<int> batches;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int under_way_ = 0;
  int most_ = 0;
};

Plan creates(std::uint32_t count) {
  Plan plan;
  for (std::uint32_t i = 0; i < count; ++i) plan.creates.push_back({{v1::ROLE_WORKER, i}, 1});
  return plan;
}

TEST(ApplierSideBySide, CreatesSlowlyAtFirst) {
  CountingCluster cluster;
  FakeClock clock;
  EventRecorder recorder(cluster, clock);
  const JobKey key = cluster.addJob(fakeJob("job", 1, 21));
  cluster.limit = 16;
  Applier applier(cluster, recorder, 16);
  ASSERT_TRUE(applier.apply(*cluster.observe(key), creates(21)).status.ok());
  EXPECT_THAT(cluster.batches, ElementsAre(1, 4, 16));
  EXPECT_EQ(cluster.observe(key)->tasks.size(), 21u);
}

TEST(ApplierSideBySide, ARefusalCostsOneCall) {
  CountingCluster cluster;
  FakeClock clock;
  EventRecorder recorder(cluster, clock);
  const JobKey key = cluster.addJob(fakeJob("job", 1, 8));
  cluster.failNext(FakeCall::kCreate, absl::ResourceExhaustedError("quota"), 100);
  Applier applier(cluster, recorder, 50);
  EXPECT_EQ(applier.apply(*cluster.observe(key), creates(8)).status.code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(cluster.calls, 1);
}

// Lets nobody through before so many writes of one kind are under way; a bound against hangs alone.
class MeetingCluster : public FakeCluster {
 public:
  Status deleteTask(const v1::TrainingJob& job, const TaskKey& task,
                    std::uint32_t created) override {
    deletes.attend();
    return FakeCluster::deleteTask(job, task, created);
  }
  Status releaseTask(const v1::TrainingJob& job, const TaskKey& task,
                     std::uint32_t created) override {
    releases.attend();
    return FakeCluster::releaseTask(job, task, created);
  }

  struct Meeting {
    void attend() {
      std::unique_lock lock(mutex);
      ++there;
      changed.notify_all();
      met = changed.wait_for(lock, std::chrono::seconds(20), [this] { return there >= 4; }) && met;
    }
    std::mutex mutex;
    std::condition_variable changed;
    int there = 0;
    bool met = true;
  };
  Meeting deletes, releases;
};

TEST(ApplierSideBySide, DeletesAndReleasesToo) {
  MeetingCluster cluster;
  FakeClock clock;
  EventRecorder recorder(cluster, clock);
  const JobKey key = cluster.addJob(fakeJob("job", 1, 8));
  cluster.setLife({.held = true});
  Plan plan;
  for (std::uint32_t i = 0; i < 8; ++i) {
    const TaskKey task{v1::ROLE_WORKER, i};
    ASSERT_TRUE(cluster.createTask(cluster.observe(key)->job, task, 1).ok());
    if (i < 4) plan.releases.push_back({task, 1});
    if (i >= 4) plan.deletes.push_back({task, 1, "x"});
  }
  Applier applier(cluster, recorder, 4);
  ASSERT_TRUE(applier.apply(*cluster.observe(key), plan).status.ok());
  EXPECT_TRUE(cluster.releases.met);
  EXPECT_TRUE(cluster.deletes.met);
  EXPECT_EQ(cluster.observe(key)->tasks.size(), 4u);
}

// Whoever ends the controller does so in the middle of the creates.
class EndingCluster : public FakeCluster {
 public:
  Status createTask(const v1::TrainingJob& job, const TaskKey& task,
                    std::uint32_t created) override {
    if (++calls == 100) applier->holdBack(true);
    return FakeCluster::createTask(job, task, created);
  }
  std::atomic<int> calls = 0;
  Applier* applier = nullptr;
};

TEST(ApplierSideBySide, HeldBackItBeginsNothingMore) {
  EndingCluster cluster;
  FakeClock clock;
  EventRecorder recorder(cluster, clock);
  const JobKey key = cluster.addJob(fakeJob("job", 1, 4000));
  Applier applier(cluster, recorder, 4);
  cluster.applier = &applier;
  Plan plan;
  for (std::uint32_t i = 0; i < 4000; ++i) plan.creates.push_back({{v1::ROLE_WORKER, i}, 1});
  const Status status = applier.apply(*cluster.observe(key), plan).status;
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(failureClass(status), FailureClass::kRetry);
  EXPECT_LE(cluster.calls, 100 + 3) << "those that were under way";
  applier.holdBack(false);
  EXPECT_TRUE(applier.apply(*cluster.observe(key), plan).status.ok());
  EXPECT_EQ(cluster.observe(key)->tasks.size(), 4000u);
}

TEST_F(ApplierTest, ReleasesAndTheEndOfTheJob) {
  cluster_.setLife({.held = true});
  ASSERT_TRUE(cluster_.createTask(observe().job, kWorkerB, 1).ok());
  trace();
  Plan plan;
  plan.releases = {{kWorkerA, 1}, {kWorkerB, 1}};  // one that is gone already
  plan.delete_job = true;
  EXPECT_TRUE(apply(plan).ok());
  EXPECT_THAT(trace(), ElementsAre("release worker-1 ", "delete the job"));
}

}  // namespace
}  // namespace trainyard::control
