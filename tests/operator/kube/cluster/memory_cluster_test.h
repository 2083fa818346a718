// A KubeCluster of the namespace "lab", against an apiserver in memory.
#pragma once

#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "operator/kube/kube_cluster.h"
#include "tests/operator/kube/cluster/memory_apiserver.h"

namespace trainyard::control {

class MemoryClusterTest : public testing::Test {
 protected:
  static KubeClusterOptions labOptions() {
    KubeClusterOptions options;
    options.ns = "lab";
    options.render = {.agent_image = "agent:1", .runtime_image = "runtime:1"};
    options.root_secrets = {std::string(32, 'r')};
    options.reflector.stream = false;  // which the server in memory does not offer
    options.reflector.backoff = std::chrono::milliseconds(5);
    options.reflector.max_backoff = std::chrono::milliseconds(20);
    return options;
  }
  void startWith(const KubeClusterOptions& options) {
    cluster_ = std::make_unique<KubeCluster>(client_, systemClock(), options);
    ASSERT_TRUE(cluster_->watch([](const JobKey&) {}).ok());
    ASSERT_TRUE(cluster_->listJobs().ok());
  }

  MemoryApiserver server_;
  KubeClient client_{server_, systemClock()};
  std::unique_ptr<KubeCluster> cluster_;
};

}  // namespace trainyard::control
