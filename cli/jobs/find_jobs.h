// Which run directory a user means.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/core/status.h"

namespace trainyard::cli {

// Directories below `runs_dir` that hold a job (or cannot be looked into), sorted by name;
// `runs_dir` itself where it is a run directory. Empty where there is no such folder.
std::vector<std::filesystem::path> listJobs(const std::filesystem::path& runs_dir);

// `job`: the name of a directory below `runs_dir`, of the one job there that has this
// metadata.name, or a path of a run directory. INVALID_ARGUMENT names what was looked for where,
// and what is near.
StatusOr<std::filesystem::path> findJob(const std::filesystem::path& runs_dir,
                                        const std::string& job);

}  // namespace trainyard::cli
