#include "tests/conformance/cluster/cluster_conformance.h"

#include <atomic>
#include <optional>

#include "gmock/gmock.h"

namespace trainyard::control {

namespace {

constexpr TaskKey kPs0{v1::ROLE_PS, 0};
constexpr TaskKey kWorker0{v1::ROLE_WORKER, 0};
constexpr TaskKey kWorker1{v1::ROLE_WORKER, 1};

bool isCode(const Status& status, absl::StatusCode code) {
  return status.code() == code;
}

bool isLive(const TaskObservation& task) {
  return task.phase == TaskPhase::kPending || task.phase == TaskPhase::kRunning;
}

}  // namespace

void ClusterConformance::SetUp() {
  harness_ = GetParam().make();
  ASSERT_NE(harness_, nullptr);
  job_ = observe().job;
}

JobObservation ClusterConformance::observe() {
  StatusOr<JobObservation> observed = cluster().observe(harness_->jobKey());
  EXPECT_TRUE(observed.ok()) << observed.status();
  return observed.ok() ? *observed : JobObservation{};
}

std::optional<TaskObservation> ClusterConformance::find(const TaskKey& key) {
  for (const TaskObservation& task : observe().tasks) {
    if (task.key == key) return task;
  }
  return std::nullopt;
}

void ClusterConformance::createWithAddress(const TaskKey& key, std::uint32_t created) {
  const Status status = cluster().createTask(job_, key, created);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_TRUE(harness_->waitFor([&] {
    const auto task = find(key);
    return task && task->created == created && !task->ip.empty() && task->port != 0;
  })) << toString(key)
      << " got no address";
}

v1::Membership ClusterConformance::membershipOf(std::int64_t revision, std::uint32_t port) {
  v1::Membership membership;
  membership.set_job(job_.metadata().name());
  membership.set_uid(job_.metadata().uid());
  membership.set_revision(revision);
  v1::MemberTask* task = membership.add_tasks();
  task->mutable_id()->set_role(v1::ROLE_PS);
  task->set_created(1);
  task->set_ip("127.0.0.1");
  task->set_port(port);
  return membership;
}

TEST_P(ClusterConformance, ListsAndObservesTheJob) {
  const auto keys = cluster().listJobs();
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_THAT(*keys, testing::Contains(harness_->jobKey()));
  const JobObservation seen = observe();
  EXPECT_EQ(seen.job.metadata().name(), harness_->jobKey().name);
  EXPECT_FALSE(seen.job.metadata().uid().empty());
  EXPECT_EQ(seen.job.spec().ps().replicas(), 1);
  EXPECT_EQ(seen.job.spec().worker().replicas(), 2);
  EXPECT_TRUE(seen.tasks.empty());
  EXPECT_FALSE(seen.membership.has_value());
}

TEST_P(ClusterConformance, UnknownJobIsNotFound) {
  const JobKey other{harness_->jobKey().ns, "no-such-job"};
  EXPECT_TRUE(isCode(cluster().observe(other).status(), absl::StatusCode::kNotFound));
}

TEST_P(ClusterConformance, CreatedTaskIsObservedAtOnceAndGetsAnAddress) {
  ASSERT_TRUE(cluster().createTask(job_, kWorker0, 7).ok());
  const auto task = find(kWorker0);
  ASSERT_TRUE(task.has_value());
  EXPECT_EQ(task->created, 7u);
  EXPECT_TRUE(isLive(*task));
  EXPECT_FALSE(task->exit.has_value());
  EXPECT_TRUE(harness_->waitFor([&] {
    const auto now = find(kWorker0);
    return now && now->port != 0 && !now->ip.empty();
  }));
}

TEST_P(ClusterConformance, TasksAreSortedByKey) {
  for (const TaskKey& key : {kWorker1, kPs0, kWorker0}) {
    ASSERT_TRUE(cluster().createTask(job_, key, 1).ok());
  }
  std::vector<std::string> names;
  for (const TaskObservation& task : observe().tasks) names.push_back(toString(task.key));
  EXPECT_THAT(names, testing::ElementsAre("ps-0", "worker-0", "worker-1"));
}

TEST_P(ClusterConformance, SecondCreateOfALiveTaskAlreadyExists) {
  createWithAddress(kPs0, 1);
  for (const std::uint32_t created : {1u, 2u}) {
    EXPECT_TRUE(
        isCode(cluster().createTask(job_, kPs0, created), absl::StatusCode::kAlreadyExists));
  }
  EXPECT_EQ(find(kPs0)->created, 1u);
}

TEST_P(ClusterConformance, ReadyIsObserved) {
  createWithAddress(kWorker0, 1);
  harness_->makeTaskReady(kWorker0);
  EXPECT_TRUE(harness_->waitFor([&] {
    const auto task = find(kWorker0);
    return task && task->ready && task->phase == TaskPhase::kRunning;
  }));
}

TEST_P(ClusterConformance, SuccessIsKeptUntilDeleted) {
  createWithAddress(kWorker0, 1);
  harness_->finishTask(kWorker0, 0);
  ASSERT_TRUE(harness_->waitFor([&] {
    const auto task = find(kWorker0);
    return task && task->phase == TaskPhase::kSucceeded;
  }));
  const auto task = find(kWorker0);
  EXPECT_FALSE(task->ready);
  EXPECT_EQ(task->created, 1u);
  ASSERT_TRUE(cluster().deleteTask(job_, kWorker0, 1).ok());
  EXPECT_TRUE(harness_->waitFor([&] { return !find(kWorker0); }));
}

TEST_P(ClusterConformance, FailureCarriesCodeAndCause) {
  createWithAddress(kWorker0, 1);
  harness_->finishTask(kWorker0, 3);
  ASSERT_TRUE(harness_->waitFor([&] {
    const auto task = find(kWorker0);
    return task && task->phase == TaskPhase::kFailed;
  }));
  const auto task = find(kWorker0);
  ASSERT_TRUE(task->exit.has_value());
  EXPECT_EQ(task->exit->code, 3);
  EXPECT_EQ(task->exit->signal, 0);
  EXPECT_FALSE(task->exit->cause.empty());
  EXPECT_EQ(task->exit->cause.find('\n'), std::string::npos);
}

TEST_P(ClusterConformance, KilledTaskIsFailedOrGoneAndCanBeCreatedAgain) {
  createWithAddress(kWorker0, 1);
  createWithAddress(kWorker1, 1);
  harness_->killTask(kWorker0);
  ASSERT_TRUE(harness_->waitFor([&] {
    const auto task = find(kWorker0);
    return !task || task->phase == TaskPhase::kFailed;
  }));
  if (const auto task = find(kWorker0)) {
    ASSERT_TRUE(task->exit.has_value());
    EXPECT_EQ(task->exit->signal, 9);
    EXPECT_FALSE(task->ready);
    ASSERT_TRUE(cluster().deleteTask(job_, kWorker0, 1).ok());
  }
  ASSERT_TRUE(harness_->waitFor([&] { return !find(kWorker0); }));
  createWithAddress(kWorker0, 2);
  EXPECT_TRUE(isLive(*find(kWorker1)));
  EXPECT_EQ(find(kWorker1)->created, 1u);
}

TEST_P(ClusterConformance, DeleteEndsExactlyTheNamedCreation) {
  createWithAddress(kWorker1, 4);
  EXPECT_TRUE(isCode(cluster().deleteTask(job_, kWorker1, 3), absl::StatusCode::kNotFound));
  EXPECT_TRUE(isCode(cluster().deleteTask(job_, kWorker0, 4), absl::StatusCode::kNotFound));
  ASSERT_TRUE(find(kWorker1).has_value());
  EXPECT_TRUE(isLive(*find(kWorker1)));
  ASSERT_TRUE(cluster().deleteTask(job_, kWorker1, 4).ok());
  EXPECT_TRUE(harness_->waitFor([&] { return !find(kWorker1); }));
  EXPECT_TRUE(isCode(cluster().deleteTask(job_, kWorker1, 4), absl::StatusCode::kNotFound));
}

TEST_P(ClusterConformance, DeletedTaskIsTerminatingOrGoneNeverFailed) {
  createWithAddress(kWorker0, 1);
  ASSERT_TRUE(cluster().deleteTask(job_, kWorker0, 1).ok());
  bool only_terminating = true;
  EXPECT_TRUE(harness_->waitFor([&] {
    const auto task = find(kWorker0);
    if (task && !task->terminating) only_terminating = false;
    return !task;
  }));
  EXPECT_TRUE(only_terminating);
}

TEST_P(ClusterConformance, ForgottenTaskIsGoneAndItsKeyIsFree) {
  createWithAddress(kWorker0, 1);
  EXPECT_TRUE(isCode(cluster().forgetTask(job_, kWorker0, 2), absl::StatusCode::kNotFound));
  ASSERT_TRUE(cluster().deleteTask(job_, kWorker0, 1).ok());
  const Status forgotten = cluster().forgetTask(job_, kWorker0, 1);
  EXPECT_TRUE(forgotten.ok() || absl::IsNotFound(forgotten)) << forgotten;
  EXPECT_TRUE(harness_->waitFor([&] { return !find(kWorker0); }));
  createWithAddress(kWorker0, 2);
}

TEST_P(ClusterConformance, MembershipRevisionsAreNeverReused) {
  ASSERT_TRUE(cluster().publish(job_, membershipOf(1, 1001)).ok());
  const JobObservation seen = observe();
  ASSERT_TRUE(seen.membership.has_value());
  EXPECT_EQ(seen.membership->SerializeAsString(), membershipOf(1, 1001).SerializeAsString());
  EXPECT_TRUE(cluster().publish(job_, membershipOf(1, 1001)).ok());
  for (const auto& refused : {membershipOf(1, 1002), membershipOf(3, 1002), membershipOf(0, 1)}) {
    EXPECT_TRUE(isCode(cluster().publish(job_, refused), absl::StatusCode::kFailedPrecondition));
  }
  ASSERT_TRUE(cluster().publish(job_, membershipOf(2, 1002)).ok());
  EXPECT_EQ(observe().membership->revision(), 2);
}

TEST_P(ClusterConformance, FirstMembershipHasRevisionOne) {
  EXPECT_TRUE(isCode(cluster().publish(job_, membershipOf(2, 1001)),
                     absl::StatusCode::kFailedPrecondition));
  EXPECT_FALSE(observe().membership.has_value());
}

TEST_P(ClusterConformance, StatusIsReplacedAndTheSpecIsNot) {
  v1::JobStatus status;
  status.set_state("Created");
  status.set_restarts(0);
  ASSERT_TRUE(cluster().writeStatus(job_, status).ok());
  v1::TrainingJob read = observe().job;
  EXPECT_EQ(read.status().SerializeAsString(), status.SerializeAsString());
  EXPECT_EQ(read.spec().SerializeAsString(), job_.spec().SerializeAsString());
  EXPECT_EQ(read.metadata().uid(), job_.metadata().uid());
  EXPECT_EQ(read.metadata().generation(), job_.metadata().generation());
  v1::JobStatus second;
  second.set_state("Running");
  ASSERT_TRUE(cluster().writeStatus(read, second).ok());
  EXPECT_EQ(observe().job.status().SerializeAsString(), second.SerializeAsString());
}

TEST_P(ClusterConformance, StatusOfAnOldReadIsRefused) {
  v1::JobStatus status;
  status.set_state("Created");
  ASSERT_TRUE(cluster().writeStatus(job_, status).ok());
  v1::JobStatus late;
  late.set_state("Failed");
  EXPECT_TRUE(isCode(cluster().writeStatus(job_, late), absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(observe().job.status().state(), "Created");
}

TEST_P(ClusterConformance, TasksAndMembershipDoNotAgeTheRecord) {
  const v1::TrainingJob before = observe().job;
  createWithAddress(kPs0, 1);
  ASSERT_TRUE(cluster().publish(before, membershipOf(1, 1001)).ok());
  v1::JobStatus status;
  status.set_state("Created");
  const Status written = cluster().writeStatus(before, status);
  EXPECT_TRUE(written.ok()) << written;
}

TEST_P(ClusterConformance, WatchTellsOfEveryKindOfChange) {
  // Outlives the cluster's threads: the harness is destroyed before the shared count is.
  const auto calls = std::make_shared<std::atomic<int>>(0);
  const JobKey key = harness_->jobKey();
  ASSERT_TRUE(cluster()
                  .watch([calls, key](const JobKey& changed) {
                    if (changed == key) ++*calls;
                  })
                  .ok());
  const auto toldAfter = [&](const std::function<void()>& change) {
    const int before = *calls;
    change();
    return harness_->waitFor([&] { return *calls > before; });
  };
  EXPECT_TRUE(toldAfter([&] { createWithAddress(kWorker0, 1); }));
  EXPECT_TRUE(toldAfter([&] {
    harness_->makeTaskReady(kWorker0);
    EXPECT_TRUE(harness_->waitFor([&] { return find(kWorker0)->ready; }));
  }));
  EXPECT_TRUE(toldAfter([&] { harness_->finishTask(kWorker0, 1); }));
}

TEST_P(ClusterConformance, EventsAreAccepted) {
  EXPECT_TRUE(cluster().recordEvent(job_, "Normal", "JobCreated", "1 ps, 2 workers").ok());
  EXPECT_TRUE(cluster().recordEvent(job_, "Warning", "TaskLost", "worker-1: \"quoted\"").ok());
}

}  // namespace trainyard::control
