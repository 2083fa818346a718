// What the processes of a task report, as one: others know tasks only.
#pragma once

#include <vector>

#include "agent/membership/identity.h"
#include "trainyard/v1/agent.pb.h"

namespace trainyard::agent {

// `reports` by process, empty ones of those that have not reported; at least one has. Examples,
// steps taken, seconds by phase, requests, bytes and what is looked up in tables are sums; the
// duration of a step is the longest; the task is ready when all of its processes are. The rest is
// what the first says.
v1::RuntimeReport mergedReport(const TaskIdentity& self,
                               const std::vector<v1::RuntimeReport>& reports);

}  // namespace trainyard::agent
