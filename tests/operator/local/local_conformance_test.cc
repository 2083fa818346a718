// The suite of the Cluster interface over LocalCluster with stub agents.
#include <signal.h>

#include "tests/conformance/cluster/cluster_conformance.h"
#include "tests/operator/local/local_run.h"

namespace trainyard::control {
namespace {

class LocalHarness : public ClusterHarness {
 public:
  LocalHarness() { run_.open(); }
  Cluster& cluster() override { return run_.cluster(); }
  JobKey jobKey() override { return run_.key(); }
  void makeTaskReady(const TaskKey& key) override { run_.command(key, "ready"); }
  void killTask(const TaskKey& key) override {
    const int pid = run_.pidOf(key);
    ASSERT_GT(pid, 0);
    ::kill(pid, SIGKILL);
  }
  void finishTask(const TaskKey& key, int code) override {
    run_.command(key, "exit " + std::to_string(code));
  }
  bool waitFor(const std::function<bool()>& predicate) override {
    return LocalRun::eventually(predicate);
  }

 private:
  LocalRun run_;
};

INSTANTIATE_TEST_SUITE_P(Local, ClusterConformance,
                         testing::Values(ConformanceParam{
                             "stub", [] { return std::make_unique<LocalHarness>(); }}),
                         conformanceName);

}  // namespace
}  // namespace trainyard::control
