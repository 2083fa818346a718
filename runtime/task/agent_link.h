// Tells the agent how this process is doing and brings what the agent wants: newer memberships, a
// stop.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/core/clock.h"
#include "trainyard/v1/agent.grpc.pb.h"
#include "trainyard/v1/measurements.grpc.pb.h"

namespace trainyard::runtime {

// One thread of its own. Without a target and a local agent it only does nothing.
class AgentLink {
 public:
  using LocalAgent = std::function<v1::RuntimeDirective(const v1::RuntimeReport&)>;
  AgentLink(std::string target, std::string token, std::function<v1::RuntimeReport()> report,
            std::function<void(const v1::RuntimeDirective&)> directive,
            std::function<v1::Measurements()> measured, LocalAgent local = {});
  ~AgentLink();
  void start();
  void poke();
  // Sends one last report, again where the agent does not answer in time, and ends.
  void stop();

 private:
  void run();
  bool sendOnce();  // false: the agent had no time for it

  const std::string token_;
  const std::function<v1::RuntimeReport()> report_;
  const std::function<void(const v1::RuntimeDirective&)> directive_;
  const std::function<v1::Measurements()> measured_;
  const LocalAgent local_;
  std::unique_ptr<v1::TaskReport::Stub> stub_;
  std::unique_ptr<v1::TaskMeasurements::Stub> measurements_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool poked_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace trainyard::runtime
