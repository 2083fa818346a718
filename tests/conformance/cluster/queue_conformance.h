// One suite for every cluster whose jobs wait in queues, as cluster_conformance.h has it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "operator/cluster/cluster.h"

namespace trainyard::control {

// A cluster with one recorded job of the queue "team-a", of which nothing was claimed yet, and the
// power of that queue. Used from one thread.
class QueueHarness {
 public:
  virtual ~QueueHarness() = default;
  virtual Cluster& cluster() = 0;
  virtual JobKey jobKey() = 0;

  // The claim is granted with so many of its workers; ... is to be given back, for that reason.
  // Both may return before an observation shows it.
  virtual void grant(int workers) = 0;
  virtual void withdraw(const std::string& message) = 0;
  // As ClusterHarness::waitFor().
  virtual bool waitFor(const std::function<bool()>& predicate) = 0;
};

struct QueueParam {
  std::string name;  // letters and digits
  std::function<std::unique_ptr<QueueHarness>()> make;
};
inline std::string queueName(const testing::TestParamInfo<QueueParam>& info) {
  return info.param.name;
}

class QueueConformance : public testing::TestWithParam<QueueParam> {
 protected:
  void SetUp() override { harness_ = GetParam().make(); }
  Cluster& cluster() { return harness_->cluster(); }
  // As it is seen now; fails the test when the job is of no queue.
  QuotaObservation quota();
  v1::TrainingJob job();
  // Waits until it is seen that way.
  bool becomes(const std::function<bool(const QuotaObservation&)>& predicate);
  void claimAndGrant(int workers);

  std::unique_ptr<QueueHarness> harness_;
};

}  // namespace trainyard::control
