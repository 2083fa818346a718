// Runs in the background.
#pragma once

#include "cli/run/launcher.h"

namespace trainyard::cli {

// Starts the launcher of `run` as a process of its own and waits, for at most `limit`, until the
// job runs. Prints how to follow it, or how the launcher ended before that. Returns the exit code:
// the launcher's where it ended.
int runDetached(const LauncherOptions& options, OpenedRun run, Duration limit,
                const Console& console);

}  // namespace trainyard::cli
