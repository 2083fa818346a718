#include "tests/conformance/cluster/cluster_conformance.h"
#include "tests/fakes/fake_cluster.h"

namespace trainyard::control {

namespace {

class FakeHarness : public ClusterHarness {
 public:
  explicit FakeHarness(bool slow_delete) : slow_delete_(slow_delete) {
    cluster_.setLife({.address_at_create = false, .slow_delete = slow_delete});
    key_ = cluster_.addJob(fakeJob("conformance", 1, 2));
  }
  Cluster& cluster() override { return cluster_; }
  JobKey jobKey() override { return key_; }
  void makeTaskReady(const TaskKey& task) override { cluster_.setReady(key_, task); }
  void killTask(const TaskKey& task) override { cluster_.killTask(key_, task, 9); }
  void finishTask(const TaskKey& task, int code) override { cluster_.exitTask(key_, task, code); }

  // Between two looks the fake's tasks go one step: an address comes, a deleted task goes.
  bool waitFor(const std::function<bool()>& predicate) override {
    for (int look = 0; look < 3; ++look) {
      if (predicate()) return true;
      step();
    }
    return predicate();
  }

 private:
  void step() {
    const auto observed = cluster_.observe(key_);
    for (const TaskObservation& task : observed->tasks) {
      if (task.terminating && slow_delete_) {
        cluster_.finishDelete(key_, task.key);
      } else if (task.port == 0) {
        cluster_.setAddress(key_, task.key);
      }
    }
  }

  FakeCluster cluster_;
  JobKey key_;
  const bool slow_delete_;
};

}  // namespace

INSTANTIATE_TEST_SUITE_P(
    Fake, ClusterConformance,
    testing::Values(ConformanceParam{"prompt", [] { return std::make_unique<FakeHarness>(false); }},
                    ConformanceParam{"slowDelete",
                                     [] { return std::make_unique<FakeHarness>(true); }}),
    conformanceName);

}  // namespace trainyard::control
