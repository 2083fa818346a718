// One suite for every cluster whose tasks have volume claims, as cluster_conformance.h has it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "operator/cluster/cluster.h"

namespace trainyard::control {

// A cluster with one recorded job of 2 workers and 1 ps. Workers have claims by the template
// "data", which go with the task. Used from one thread.
class ClaimHarness {
 public:
  virtual ~ClaimHarness() = default;
  virtual Cluster& cluster() = 0;
  virtual JobKey jobKey() = 0;

  // Names of the claims that there are and that nobody has deleted, sorted.
  virtual std::vector<std::string> claims() = 0;
  // As ClusterHarness::waitFor().
  virtual bool waitFor(const std::function<bool()>& predicate) = 0;
};

struct ClaimParam {
  std::string name;  // letters and digits
  std::function<std::unique_ptr<ClaimHarness>()> make;
};
inline std::string claimParamName(const testing::TestParamInfo<ClaimParam>& info) {
  return info.param.name;
}

class ClaimConformance : public testing::TestWithParam<ClaimParam> {
 protected:
  void SetUp() override { harness_ = GetParam().make(); }
  Cluster& cluster() { return harness_->cluster(); }
  JobObservation observe();
  // "<template>-<job>-<task>"
  std::string nameFor(const TaskKey& task);
  // Ends the task that was created as `created`, and waits until it is gone.
  void end(const TaskKey& task, std::uint32_t created);

  std::unique_ptr<ClaimHarness> harness_;
};

}  // namespace trainyard::control
