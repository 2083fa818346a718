// A child process that is only waited for.
#pragma once

#include "base/core/clock.h"
#include "base/process/child_process.h"

namespace trainyard {

// Starts it and waits `limit` at most; one that runs on is killed. All of its lines have been given
// to options.on_line when this returns. Errors as of ChildProcess::spawn() and wait().
StatusOr<ExitState> runToEnd(const SpawnOptions& options, Duration limit);

}  // namespace trainyard
