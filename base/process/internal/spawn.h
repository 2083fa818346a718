// The step from this process to another program.
#pragma once

#include <sys/types.h>

#include "base/core/status.h"
#include "base/process/child_process.h"

namespace trainyard::internal {

// Starts the program of `options`; `output` becomes its standard output and error (-1: inherited).
StatusOr<pid_t> spawnProgram(const SpawnOptions& options, int output);

}  // namespace trainyard::internal
