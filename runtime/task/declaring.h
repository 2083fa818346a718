// What a task reports while it does not know yet what is trained: worker-0's program says so.
#pragma once

#include <memory>

#include "runtime/task/agent_link.h"
#include "runtime/task/options.h"

namespace trainyard::runtime {

// Reports phase Declaring until it goes. What the agent wants meanwhile it says again to the link
// that follows.
std::unique_ptr<AgentLink> reportDeclaring(const TaskOptions& options);

}  // namespace trainyard::runtime
