// Where the agents of a job's tasks listen. Implemented by whoever runs the tasks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/core/status.h"
#include "operator/cluster/cluster.h"

namespace trainyard::control {

struct AgentEndpoint {
  TaskKey key;
  std::uint32_t created = 0;
  std::string address;  // "ip:port" of the agent's gRPC server
};

// Thread-safe; calls may read files but never the network.
class AgentDirectory {
 public:
  virtual ~AgentDirectory() = default;
  // The agents that are known to listen now; a task without one is left out. NOT_FOUND when the job
  // is gone.
  virtual StatusOr<std::vector<AgentEndpoint>> agents(const JobKey& key) = 0;
  // The token that every call to these agents carries.
  virtual StatusOr<std::string> token(const JobKey& key) = 0;
};

}  // namespace trainyard::control
