// The agent of one task, put together.
#pragma once

#include <string>
#include <vector>

#include "agent/agent_flags.h"
#include "agent/membership/identity.h"
#include "base/core/status.h"
#include "base/process/signals.h"

namespace trainyard::agent {

// Serves, and looks after the task's program until that has ended for good or the agent is told to
// stop. Blocks; `signals` (SIGTERM, SIGINT, SIGCHLD) was made by this thread before any other
// existed. `environment`: of this process, from which that of the program is made. Returns the
// agent's exit code; the error is of what could not be begun. No process of the task is left then.
StatusOr<int> runAgent(const AgentFlags& flags, const TaskIdentity& self,
                       std::vector<std::string> environment, SignalWaiter& signals);

}  // namespace trainyard::agent
