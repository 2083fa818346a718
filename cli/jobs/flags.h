// What the verbs on local jobs have in common.
#pragma once

#include <filesystem>
#include <string>

#include "base/core/status.h"
#include "cli/command.h"

namespace trainyard::cli {

struct JobFlags {
  std::string job;   // name or directory
  std::string runs;  // "": as the Console says
};

// --runs, and JOB where a job must be named.
void addRunsFlag(CLI::App& verb, JobFlags& flags);
void addJobFlags(CLI::App& verb, JobFlags& flags);
std::string runsDir(const JobFlags& flags, const Console& console);

// One line on standard error, "trainyard <verb>: ...". Returns the exit code: 2 for what the user
// gave, 1 for what went wrong.
int failVerb(const Console& console, const std::string& verb, const Status& status);

}  // namespace trainyard::cli
