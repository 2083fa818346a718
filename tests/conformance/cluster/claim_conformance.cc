#include "tests/conformance/cluster/claim_conformance.h"

#include "fmt/format.h"
#include "gmock/gmock.h"

namespace trainyard::control {

namespace {

constexpr TaskKey kPs0{v1::ROLE_PS, 0};
constexpr TaskKey kWorker0{v1::ROLE_WORKER, 0};
constexpr TaskKey kWorker1{v1::ROLE_WORKER, 1};

}  // namespace

JobObservation ClaimConformance::observe() {
  JobObservation last;
  EXPECT_TRUE(harness_->waitFor([&] {
    const auto seen = cluster().observe(harness_->jobKey());
    if (seen.ok()) last = *seen;
    return seen.ok();
  }));
  return last;
}

std::string ClaimConformance::nameFor(const TaskKey& task) {
  return fmt::format("data-{}-{}", harness_->jobKey().name, toString(task));
}

void ClaimConformance::end(const TaskKey& task, std::uint32_t created) {
  ASSERT_TRUE(cluster().deleteTask(observe().job, task, created).ok());
  ASSERT_TRUE(harness_->waitFor([&] {
    for (const TaskObservation& seen : observe().tasks) {
      if (seen.key == task) return false;
    }
    return true;
  }));
}

TEST_P(ClaimConformance, ATaskHasItsOwnAndFindsItAgain) {
  EXPECT_THAT(harness_->claims(), testing::IsEmpty());
  ASSERT_TRUE(cluster().createTask(observe().job, kWorker0, 1).ok());
  ASSERT_TRUE(cluster().createTask(observe().job, kWorker1, 1).ok());
  ASSERT_TRUE(cluster().createTask(observe().job, kPs0, 1).ok());
  const auto both = testing::ElementsAre(nameFor(kWorker0), nameFor(kWorker1));
  EXPECT_THAT(harness_->claims(), both) << "the role ps has no template";
  ASSERT_NO_FATAL_FAILURE(end(kWorker1, 1));
  EXPECT_THAT(harness_->claims(), both) << "it outlives its task";
  ASSERT_TRUE(cluster().createTask(observe().job, kWorker1, 2).ok());
  EXPECT_THAT(harness_->claims(), both);
}

TEST_P(ClaimConformance, WhoHasClaimsIsObserved) {
  EXPECT_THAT(observe().volume_claims, testing::IsEmpty());
  ASSERT_TRUE(cluster().createTask(observe().job, kWorker1, 1).ok());
  ASSERT_TRUE(cluster().createTask(observe().job, kPs0, 1).ok());
  EXPECT_THAT(observe().volume_claims, testing::ElementsAre(kWorker1));
}

TEST_P(ClaimConformance, DroppedAreThoseOfTheTaskOnly) {
  for (const TaskKey& task : {kWorker0, kWorker1})
    ASSERT_TRUE(cluster().createTask(observe().job, task, 1).ok());
  ASSERT_NO_FATAL_FAILURE(end(kWorker1, 1));
  ASSERT_TRUE(cluster().dropVolumeClaims(observe().job, kWorker1).ok());
  EXPECT_THAT(observe().volume_claims, testing::ElementsAre(kWorker0));
  EXPECT_THAT(harness_->claims(), testing::ElementsAre(nameFor(kWorker0)));
  EXPECT_TRUE(cluster().dropVolumeClaims(observe().job, kWorker1).ok()) << "gone is gone";
  EXPECT_THAT(harness_->claims(), testing::ElementsAre(nameFor(kWorker0)));
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ClaimConformance);

}  // namespace trainyard::control
