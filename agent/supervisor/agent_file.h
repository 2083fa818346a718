// What an agent leaves in tasks/<role>-<index>/ for those who started it: agent.json, report.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "agent/supervisor/supervisor.h"
#include "base/core/status.h"
#include "trainyard/v1/agent.pb.h"

namespace trainyard::agent {

// The part that stays while the agent lives.
struct AgentAddress {
  std::string ip;
  int agent_port = 0;
  int metrics_port = 0;
  int task_port = 0;
  std::uint32_t created = 0;
  bool ready = false;  // the program says so
};

// {"pid","agentPort","metricsPort","taskPort","ip","created","start","plannedStarts","childPid",
//  "childPids","child","ready","lastExitCode","lastSignal"}; pid is this process's, childPid the
// program's first.
std::string formatAgentFile(const AgentAddress& address, const ChildView& view);

// Replaces the file atomically.
Status writeAgentFile(const std::filesystem::path& path, const AgentAddress& address,
                      const ChildView& view);

// The last report of a program that has ended, as protobuf maps it to JSON: what it said can be
// read when its agent is gone. Replaces the file atomically.
Status writeReportFile(const std::filesystem::path& path, const v1::RuntimeReport& report);

// What a pod's status keeps of a task that has ended (its termination message, at most 4 KiB): what
// the job's coordinator said last, {"jobProgress": {...}} as protobuf maps it to JSON. Empty for a
// report without it: the kubelet then keeps the last lines of the log.
std::string lastWords(const v1::RuntimeReport& report);
// Over what the file holds, in place: it is mounted by itself.
Status writeLastWords(const std::filesystem::path& path, const v1::RuntimeReport& report);

}  // namespace trainyard::agent
