// The program of a job with a model of its own, as its agent has written it down for this start.
#pragma once

#include <string>
#include <vector>

#include "base/core/status.h"

namespace trainyard::runtime {

struct ProgramCommand {
  std::vector<std::string> argv;  // at least one
  std::vector<std::string> env;   // "NAME=value", all of it
  std::string working_dir;        // "": that of this process
};

// {"argv": [...], "env": ["NAME=value", ...], "workingDir": "/..."}. INVALID_ARGUMENT names the
// path and the member.
StatusOr<ProgramCommand> readProgramCommand(const std::string& path);

}  // namespace trainyard::runtime
