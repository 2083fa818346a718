#include "tests/conformance/cluster/queue_conformance.h"
#include "tests/fakes/fake_cluster.h"

namespace trainyard::control {

namespace {

class FakeQueueHarness : public QueueHarness {
 public:
  FakeQueueHarness() {
    key_ = cluster_.addJob(fakeJob("conformance", 1, 3));
    cluster_.setQueue(key_, "team-a");
  }
  Cluster& cluster() override { return cluster_; }
  JobKey jobKey() override { return key_; }
  void grant(int workers) override { cluster_.grantQuota(key_, workers); }
  void withdraw(const std::string& message) override { cluster_.withdrawQuota(key_, message); }
  bool waitFor(const std::function<bool()>& predicate) override { return predicate(); }

 private:
  FakeCluster cluster_;
  JobKey key_;
};

}  // namespace

INSTANTIATE_TEST_SUITE_P(Fake, QueueConformance,
                         testing::Values(QueueParam{
                             "memory", [] { return std::make_unique<FakeQueueHarness>(); }}),
                         queueName);

}  // namespace trainyard::control
