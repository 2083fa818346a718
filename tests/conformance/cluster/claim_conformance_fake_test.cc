#include "tests/conformance/cluster/claim_conformance.h"
#include "tests/fakes/fake_cluster.h"

namespace trainyard::control {

namespace {

class FakeClaimHarness : public ClaimHarness {
 public:
  FakeClaimHarness() {
    v1::TrainingJob job = fakeJob("conformance", 1, 2);
    v1::WorkerSpec& worker = *job.mutable_spec()->mutable_worker();
    worker.add_volume_claim_templates()->mutable_metadata()->set_name("data");
    worker.mutable_persistent_volume_claim_retention_policy()->set_when_scaled("Delete");
    key_ = cluster_.addJob(job);
  }
  Cluster& cluster() override { return cluster_; }
  JobKey jobKey() override { return key_; }
  std::vector<std::string> claims() override { return cluster_.volumeClaims(key_); }
  bool waitFor(const std::function<bool()>& predicate) override { return predicate(); }

 private:
  FakeCluster cluster_;
  JobKey key_;
};

}  // namespace

INSTANTIATE_TEST_SUITE_P(Fake, ClaimConformance,
                         testing::Values(ClaimParam{
                             "memory", [] { return std::make_unique<FakeClaimHarness>(); }}),
                         claimParamName);

}  // namespace trainyard::control
