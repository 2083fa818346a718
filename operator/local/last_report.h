// What a task of this machine reported last: its agent writes that down as the program ends
// (report.json), before it says in agent.json that it has.
#pragma once

#include <filesystem>
#include <optional>

#include "base/core/status.h"
#include "operator/local/run_directory.h"
#include "trainyard/v1/agent.pb.h"

namespace trainyard::control {

// NOT_FOUND when there is none yet; INVALID_ARGUMENT names the file.
StatusOr<v1::RuntimeReport> readLastReport(const std::filesystem::path& path);

// What the job's coordinator said in that file, where the task is the coordinator's and its program
// is the one that `agent` started last: the file of an earlier program says less than the agent did
// when it was asked.
std::optional<v1::JobProgress> lastWordOf(const std::filesystem::path& path,
                                          const AgentFile& agent);

}  // namespace trainyard::control
