// Random lives of a job on the fake cluster. After each event plans are carried out until one is
// empty; what must always hold is checked on the way.
#include <algorithm>
#include <set>

#include "base/core/rng.h"
#include "base/core/strings.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "operator/apply/applier.h"
#include "operator/plan/planner.h"
#include "tests/fakes/fake_cluster.h"

namespace trainyard::control {
namespace {

constexpr int kSeeds = 200;
constexpr int kEvents = 60;
constexpr int kRoundsMax = 8;

class RandomLife {
 public:
  explicit RandomLife(std::uint64_t seed)
      : rng_(seed), recorder_(cluster_, clock_), applier_(cluster_, recorder_) {
    v1::TrainingJob job =
        fakeJob("job", static_cast<int>(rng_.below(3)), 1 + static_cast<int>(rng_.below(3)));
    v1::RunPolicy* policy = job.mutable_spec()->mutable_run_policy();
    policy->set_backoff_limit(static_cast<int>(rng_.below(20)));
    policy->set_success_policy(rng_.below(2) == 0 ? "Chief" : "AllWorkers");
    const char* policies[] = {"Running", "All", "None"};
    policy->set_clean_pod_policy(policies[rng_.below(3)]);
    if (rng_.below(4) == 0) policy->set_active_deadline_seconds(300);
    v1::WorkerSpec& worker = *job.mutable_spec()->mutable_worker();
    worker.add_volume_claim_templates()->mutable_metadata()->set_name("data");
    worker.mutable_persistent_volume_claim_retention_policy()->set_when_scaled("Delete");
    cluster_.setLife({.address_at_create = rng_.below(2) == 0,
                      .ready_at_create = rng_.below(3) == 0,
                      .slow_delete = rng_.below(2) == 0});
    key_ = cluster_.addJob(job);
  }

  void run() {
    settle();
    for (int i = 0; i < kEvents && !testing::Test::HasFatalFailure(); ++i) {
      happen();
      settle();
    }
  }

 private:
  PlannerInput look() {
    PlannerInput input;
    input.observed = *cluster_.observe(key_);
    input.progress = progress_;
    input.progress_created = progress_created_;
    input.now = clock_.now();
    input.unix_ms = clock_.unixMillis();
    return input;
  }

  // Carries out plans until one is empty, then once more to see that it stays so.
  void settle() {
    for (int round = 0; round < kRoundsMax; ++round) {
      const PlannerInput input = look();
      const Plan plan = planJob(input);
      check(input, plan);
      if (isEmpty(plan)) {
        EXPECT_TRUE(isEmpty(planJob(look())));
        if (plan.wake_at) {
          EXPECT_GT(*plan.wake_at, clock_.now());
        }
        return;
      }
      // A fault now and then: partly carried out, or carried out without an answer.
      if (rng_.below(8) == 0) {
        constexpr FakeCall kCalls[] = {FakeCall::kCreate, FakeCall::kDelete, FakeCall::kPublish,
                                       FakeCall::kStatus};
        cluster_.failNext(kCalls[rng_.below(4)], absl::UnavailableError("lost"), 1,
                          rng_.below(2) == 0);
        --round;
      }
      (void)applier_.apply(input.observed, plan);
    }
    FAIL() << "no rest after " << kRoundsMax << " rounds:\n" << join(cluster_.takeTrace(), "\n");
  }

  void check(const PlannerInput& input, const Plan& plan) {
    const v1::JobStatus& before = input.observed.job.status();
    const v1::JobStatus& after = plan.status ? *plan.status : before;
    const bool was_terminal = before.state() == "Succeeded" || before.state() == "Failed";
    if (was_terminal) {
      ASSERT_EQ(after.state(), before.state());
      ASSERT_TRUE(plan.creates.empty()) << "nothing begins after the end";
      ASSERT_FALSE(plan.publish.has_value());
    }
    ASSERT_GE(after.restarts(), before.restarts());
    ASSERT_GE(after.disruptions(), before.disruptions());
    for (const CreateTask& create : plan.creates) checkCreate(input, create);
    for (const TaskKey& key : plan.claim_drops) checkDrop(input, plan, key);
    if (plan.publish) {
      const std::int64_t revision =
          input.observed.membership ? input.observed.membership->revision() : 0;
      ASSERT_EQ(plan.publish->revision(), revision + 1);
      checkSorted(*plan.publish);
    }
    if (input.observed.job.spec().run_policy().suspend()) {
      ASSERT_TRUE(plan.creates.empty()) << "a suspended job makes nothing";
    }
  }

  void checkCreate(const PlannerInput& input, const CreateTask& create) {
    for (const TaskObservation& task : input.observed.tasks) ASSERT_NE(task.key, create.key);
    // The same number again only while nobody ever saw a task of it.
    ASSERT_FALSE(seen_.contains({create.key, create.created}))
        << toString(create.key) << " twice as " << create.created << ":\n"
        << join(cluster_.takeTrace(), "\n");
    ASSERT_FALSE(finished_.contains(create.key)) << toString(create.key) << " had finished";
  }

  // What a task has kept goes only when it is gone and not to come again.
  static void checkDrop(const PlannerInput& input, const Plan& plan, const TaskKey& key) {
    for (const TaskObservation& task : input.observed.tasks) ASSERT_NE(task.key, key);
    for (const CreateTask& create : plan.creates) ASSERT_NE(create.key, key);
    ASSERT_NE(key, (TaskKey{v1::ROLE_WORKER, 0})) << "which never leaves";
  }

  static void checkSorted(const v1::Membership& membership) {
    for (int i = 1; i < membership.tasks_size(); ++i) {
      const auto& a = membership.tasks(i - 1).id();
      const auto& b = membership.tasks(i).id();
      ASSERT_LT(std::make_pair(a.role(), a.index()), std::make_pair(b.role(), b.index()));
    }
  }

  void note(const JobObservation& observed) {
    for (const TaskObservation& task : observed.tasks) seen_.insert({task.key, task.created});
    for (const std::string_view part :
         split(observed.job.status().worker().finished_indices(), ',')) {
      const auto [from, to] = splitFirst(part, '-');
      const auto first = parseNumber<std::uint32_t>(from);
      const auto last = to.empty() ? first : parseNumber<std::uint32_t>(to);
      for (std::uint32_t i = first.value_or(1); first && i <= *last; ++i) {
        finished_.insert({v1::ROLE_WORKER, i});
      }
    }
  }

  void happen() {
    const JobObservation observed = *cluster_.observe(key_);
    note(observed);
    const std::uint64_t dice = rng_.below(20);
    if (dice < 3) {
      clock_.advance(std::chrono::milliseconds(200 + rng_.below(90'000)));
    } else if (dice == 3) {
      const bool suspend = rng_.below(2) == 0;
      cluster_.editSpec(
          key_, [suspend](v1::JobSpec* spec) { spec->mutable_run_policy()->set_suspend(suspend); });
    } else if (dice == 4) {
      speak(observed);
    } else if (dice == 5) {
      const int workers = 1 + static_cast<int>(rng_.below(4));
      cluster_.editSpec(
          key_, [workers](v1::JobSpec* spec) { spec->mutable_worker()->set_replicas(workers); });
    } else if (!observed.tasks.empty()) {
      happenTo(observed.tasks[rng_.below(observed.tasks.size())]);
    }
  }

  void speak(const JobObservation& observed) {
    for (const TaskObservation& task : observed.tasks) {
      if (task.key != TaskKey{v1::ROLE_PS, 0}) continue;
      progress_.emplace();
      progress_->set_step(static_cast<std::int64_t>(rng_.below(1000)));
      const char* outcomes[] = {"", "", "", "stopped", "succeeded"};
      progress_->set_outcome(outcomes[rng_.below(5)]);
      progress_created_ = task.created;
    }
  }

  void happenTo(const TaskObservation& task) {
    const bool live = !task.terminating && !task.exit;
    if (task.terminating) {
      cluster_.finishDelete(key_, task.key);
      return;
    }
    switch (rng_.below(10)) {
      case 0:
        return cluster_.vanishTask(key_, task.key);
      case 1:
        return cluster_.beginDelete(key_, task.key);
      case 2:
        if (live) cluster_.killTask(key_, task.key, 9);
        return;
      case 3:
        if (live) cluster_.exitTask(key_, task.key, rng_.below(4) == 0 ? 3 : 1);
        return;
      case 4:
        if (live && task.ready) cluster_.exitTask(key_, task.key, 0);
        return;
      case 5:
        if (live) cluster_.disruptTask(key_, task.key, "evicted");
        return;
      case 6:
        if (live) cluster_.setRestarts(key_, task.key, task.restarts + 1);
        return;
      default:
        if (live) cluster_.setReady(key_, task.key);
        return;
    }
  }

  Rng rng_;
  FakeClock clock_;
  FakeCluster cluster_;
  EventRecorder recorder_;
  Applier applier_;
  JobKey key_;
  std::optional<v1::JobProgress> progress_;
  std::uint32_t progress_created_ = 0;
  std::set<std::pair<TaskKey, std::uint32_t>> seen_;
  std::set<TaskKey> finished_;
};

TEST(PlannerProperty, EveryLifeComesToRestAndKeepsItsPromises) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RandomLife(seed).run();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace trainyard::control
