// Where the agents of a job's tasks listen. Implemented by whoever runs the tasks.
#pragma once

#include <cstdint>
#include <optional>
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

// PEM, for TLS: who signs both sides, and what we prove ourselves by.
struct AgentTls {
  std::string ca;
  std::string cert;
  std::string key;
  std::string server_name;  // what every agent of the job proves to be
};

// Thread-safe; calls may read files but never the network, unless they say so.
class AgentDirectory {
 public:
  virtual ~AgentDirectory() = default;
  // The agents that are known to listen now; a task without one is left out. NOT_FOUND when the job
  // is gone.
  virtual StatusOr<std::vector<AgentEndpoint>> agents(const JobKey& key) = 0;
  // How these agents are talked to; nothing: in clear, on this machine.
  virtual StatusOr<std::optional<AgentTls>> tls(const JobKey& /*key*/) { return std::nullopt; }
  // An agent could not be told of a newer membership: make it look at the file again, where that is
  // not only a matter of moments. May write; failures are lost.
  virtual void pushFailed(const JobKey& /*key*/, const AgentEndpoint& /*agent*/,
                          std::int64_t /*revision*/) {}
  // The token that every call to these agents carries.
  virtual StatusOr<std::string> token(const JobKey& key) = 0;
};

}  // namespace trainyard::control
