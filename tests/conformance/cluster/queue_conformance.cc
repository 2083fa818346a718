#include "tests/conformance/cluster/queue_conformance.h"

namespace trainyard::control {

namespace {

QuotaClaim threeWorkers() {
  QuotaClaim claim;
  claim.ps = 1;
  claim.workers = 3;
  claim.least_workers = 2;
  return claim;
}

}  // namespace

v1::TrainingJob QueueConformance::job() {
  v1::TrainingJob job;
  EXPECT_TRUE(harness_->waitFor([&] {
    const auto seen = cluster().observe(harness_->jobKey());
    if (seen.ok()) job = seen->job;
    return seen.ok();
  }));
  return job;
}

QuotaObservation QueueConformance::quota() {
  std::optional<QuotaObservation> quota;
  EXPECT_TRUE(harness_->waitFor([&] {
    const auto seen = cluster().observe(harness_->jobKey());
    if (seen.ok()) quota = seen->quota;
    return quota.has_value();
  }));
  return quota.value_or(QuotaObservation());
}

bool QueueConformance::becomes(const std::function<bool(const QuotaObservation&)>& predicate) {
  return harness_->waitFor([&] { return predicate(quota()); });
}

void QueueConformance::claimAndGrant(int workers) {
  ASSERT_TRUE(cluster().claimQuota(job(), threeWorkers()).ok());
  ASSERT_TRUE(becomes([](const QuotaObservation& seen) { return seen.claim.has_value(); }));
  harness_->grant(workers);
  ASSERT_TRUE(becomes([](const QuotaObservation& seen) { return seen.granted; }));
}

TEST_P(QueueConformance, AClaimIsSeenAsItWasMade) {
  EXPECT_EQ(quota().queue, "team-a");
  EXPECT_FALSE(quota().claim.has_value());
  ASSERT_TRUE(cluster().claimQuota(job(), threeWorkers()).ok());
  EXPECT_EQ(quota().claim, threeWorkers()) << "the next observation shows what was written";
  EXPECT_FALSE(quota().held || quota().granted || quota().withdrawn || quota().outdated);
}

TEST_P(QueueConformance, WhoWaitsMayAskForSomethingElse) {
  ASSERT_TRUE(cluster().claimQuota(job(), threeWorkers()).ok());
  QuotaClaim more = threeWorkers();
  more.workers = more.least_workers = 5;
  ASSERT_TRUE(cluster().claimQuota(job(), more).ok());
  EXPECT_EQ(quota().claim, more);
}

TEST_P(QueueConformance, WhatIsGrantedIsSeenAndWhatIsToldOfIt) {
  claimAndGrant(2);
  EXPECT_TRUE(quota().held);
  EXPECT_FALSE(quota().withdrawn);
  EXPECT_EQ(quota().workers_granted, 2);
  EXPECT_EQ(quota().message, "");
  QuotaClaim told = threeWorkers();
  told.ready = true;
  told.workers_done = 2;
  ASSERT_TRUE(cluster().claimQuota(job(), told).ok());
  EXPECT_EQ(quota().claim, told);
  EXPECT_TRUE(quota().granted);
}

TEST_P(QueueConformance, WhatIsWithdrawnIsGivenBack) {
  claimAndGrant(3);
  QuotaClaim told = threeWorkers();
  told.ready = true;
  told.workers_done = 1;
  ASSERT_TRUE(cluster().claimQuota(job(), told).ok());
  harness_->withdraw("others need it");
  ASSERT_TRUE(becomes([](const QuotaObservation& seen) { return seen.withdrawn; }));
  EXPECT_TRUE(quota().held);
  EXPECT_EQ(quota().message, "others need it");
  ASSERT_TRUE(cluster().giveQuotaBack(job()).ok());
  EXPECT_FALSE(quota().held || quota().granted || quota().withdrawn);
  EXPECT_EQ(quota().claim, threeWorkers()) << "it asks for all again";
  harness_->grant(3);
  EXPECT_TRUE(becomes([](const QuotaObservation& seen) { return seen.granted; }));
}

TEST_P(QueueConformance, AnEndFreesWhatWasHeld) {
  claimAndGrant(3);
  QuotaClaim ended = threeWorkers();
  ended.end = QuotaEnd::kSucceeded;
  ASSERT_TRUE(cluster().claimQuota(job(), ended).ok());
  EXPECT_EQ(quota().claim, ended);
  EXPECT_FALSE(quota().held || quota().granted);
}

TEST_P(QueueConformance, WhoHasLeftTheQueueMayAskAnew) {
  claimAndGrant(3);
  ASSERT_TRUE(cluster().dropClaim(job()).ok());
  EXPECT_FALSE(quota().claim.has_value());
  EXPECT_FALSE(quota().held || quota().granted);
  ASSERT_TRUE(harness_->waitFor([&] { return cluster().claimQuota(job(), threeWorkers()).ok(); }));
  EXPECT_EQ(quota().claim, threeWorkers());
  EXPECT_FALSE(quota().granted) << "of the claim before";
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(QueueConformance);

}  // namespace trainyard::control
