// Processes of a task that its agent no longer looks after.
#pragma once

#include <filesystem>

#include "base/core/clock.h"
#include "operator/local/run_directory.h"

namespace trainyard::control {

// Whether process `pid` lives and has `task_dir` among its arguments: the pid alone proves nothing,
// for the kernel gives it out again.
bool isProcessOfTask(int pid, const std::filesystem::path& task_dir);

// SIGKILL for the agent and the child named in `agent`, as far as they are processes of that task,
// and for all processes that a program of the user's own has started there.
// Returns whether one of them lived.
bool killProcessesOfTask(const AgentFile& agent, const std::filesystem::path& task_dir);

// Ends all processes named in the agent.json files of a run directory and removes these files.
// Waits up to 2 s for the processes to go; they are not children of ours. Files that one of them,
// or a launcher, was about to put in place when it was killed go as well.
void endLeftoversOf(const RunPaths& paths, const Clock& clock);

// The last error line of a task's log, without time, level and task; "" where there is none.
std::string lastErrorOf(const std::filesystem::path& log);
// The last line that is none of our own programs'; "" where there is none.
std::string lastOutputOf(const std::filesystem::path& log);

}  // namespace trainyard::control
