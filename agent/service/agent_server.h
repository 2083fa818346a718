// The agent's two gRPC servers: Agent on TCP for the operator, TaskReport and TaskMeasurements on a
// Unix socket for the task's own program. Every call of both needs the job's token.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "agent/service/task_hub.h"
#include "base/core/status.h"
#include "base/security/job_keys.h"

namespace trainyard::agent {

struct AgentServerOptions {
  std::string bind = "127.0.0.1";
  int port = 0;        // 0: any free one
  std::string socket;  // see reportSocket()
  std::string token;
  // With it the Agent service speaks TLS, with clients that the same authority has signed.
  std::optional<TlsIdentity> tls = {};
};

// Where the program reports: <task_dir>/report.sock, or "@trainyard-<uid>-<task>-<created>" (an
// abstract socket) when that path is too long for a Unix socket.
std::string reportSocket(const std::string& task_dir, const TaskIdentity& self);

// Serves from start() to the destructor, which ends running calls after 0.3 s.
class AgentServer {
 public:
  // `hub` outlives the server. UNAVAILABLE naming the address that cannot be listened at.
  static StatusOr<std::unique_ptr<AgentServer>> start(const AgentServerOptions& options,
                                                      TaskHub& hub);
  ~AgentServer();
  // Of the Agent service.
  int port() const;

 private:
  struct State;
  std::unique_ptr<State> state_;

 public:
  // For start(): nobody else can name a State.
  explicit AgentServer(std::unique_ptr<State> state);
};

}  // namespace trainyard::agent
