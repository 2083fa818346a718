// The process that looks after a run from its opened directory to its result: the one of
// `trainyard run`, or one of its own in the background.
#pragma once

#include <string>

#include "base/core/status.h"
#include "base/process/child_process.h"
#include "base/process/signals.h"
#include "cli/command.h"
#include "cli/run/directory.h"
#include "cli/run/result.h"
#include "operator/local/local_cluster.h"

namespace trainyard::cli {

struct LauncherOptions {
  std::string shown_dir;            // the run directory as the user gave it
  std::string log_format = "text";  // or json
  std::string agent;                // "": beside this program
  std::string runtime;
  bool show_output = false;    // what the tasks print, beside what becomes of them
  control::TaskPlaces places;  // of a launcher in the foreground; spawnLauncher() has none
};

// What a user gives to the verbs for the job in `dir`: its name below the folder of the runs, else
// the directory itself.
std::string jobArgument(const std::string& dir, const std::string& runs_dir);

// What the program exits with after such a run.
int exitCode(const RunResult& result);

// Blocks SIGINT, SIGTERM and SIGHUP, which then stop the job in order; before any thread exists.
StatusOr<SignalWaiter> launcherSignals();

// NOT_FOUND, or another code, naming the agent or (where the job needs it) the runtime that cannot
// be executed: without them a job would wait for tasks that nobody can start. INVALID_ARGUMENT: the
// job needs the runtime with LibTorch, and it is not there.
Status checkPrograms(const LauncherOptions& options, const v1::TrainingJob& job,
                     const Console& console);

// Shows the run, from `run.headline` on, until it is over, and prints its result. Returns the exit
// code. No process of the run is left then.
int runToEnd(const LauncherOptions& options, OpenedRun run, SignalWaiter& signals,
             const Console& console);

// Starts `trainyard launch` in a session of its own, with its output appended to launcher.log, and
// hands it the lock of the directory. The caller keeps or releases the child.
StatusOr<ChildProcess> spawnLauncher(const LauncherOptions& options, OpenedRun run,
                                     const Console& console);

}  // namespace trainyard::cli
