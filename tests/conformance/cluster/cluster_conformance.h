// One suite for every implementation of operator/cluster/cluster.h, so that a fake cannot drift
// from the real ones. A test program links `cluster_conformance` and instantiates the suite:
//
//   INSTANTIATE_TEST_SUITE_P(Local, ClusterConformance,
//                            testing::Values(ConformanceParam{"local", makeLocalHarness}),
//                            conformanceName);
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "operator/cluster/cluster.h"

namespace trainyard::control {

// A cluster with one recorded job, and the power to decide what its tasks do. The job has 1 ps and
// 2 workers, a uid, generation 1, no status, no tasks and no membership. Used from one thread; the
// destructor ends every task that still lives.
class ClusterHarness {
 public:
  virtual ~ClusterHarness() = default;
  virtual Cluster& cluster() = 0;
  virtual JobKey jobKey() = 0;

  // Each of these acts on the live task of that key. They may return before an observation shows
  // the effect; the suite waits for it.
  virtual void makeTaskReady(const TaskKey& key) = 0;
  // The whole task dies by SIGKILL (its agent, not only its child).
  virtual void killTask(const TaskKey& key) = 0;
  // The task ends by itself with exit code `code`.
  virtual void finishTask(const TaskKey& key, int code) = 0;

  // Evaluates `predicate` until it is true or a deadline of the harness has passed (a fake: a few
  // times; processes: some seconds). Returns its last value.
  virtual bool waitFor(const std::function<bool()>& predicate) = 0;
};

struct ConformanceParam {
  std::string name;  // letters and digits
  std::function<std::unique_ptr<ClusterHarness>()> make;
};
inline std::string conformanceName(const testing::TestParamInfo<ConformanceParam>& info) {
  return info.param.name;
}

class ClusterConformance : public testing::TestWithParam<ConformanceParam> {
 protected:
  void SetUp() override;
  Cluster& cluster() { return harness_->cluster(); }
  // The newest observation; fails the test when there is none.
  JobObservation observe();
  // The task as observed now, if any.
  std::optional<TaskObservation> find(const TaskKey& key);
  // Creates the task and waits until it has an address.
  void createWithAddress(const TaskKey& key, std::uint32_t created);
  v1::Membership membershipOf(std::int64_t revision, std::uint32_t port);

  std::unique_ptr<ClusterHarness> harness_;
  v1::TrainingJob job_;  // as first observed
};

}  // namespace trainyard::control
