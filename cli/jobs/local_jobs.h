// The run directories below a folder, as jobs that the verbs look after.
#pragma once

#include "cli/command.h"
#include "cli/jobs/job_source.h"
#include "cli/run/launcher.h"

namespace trainyard::cli {

// `runs`: the folder; `named`: the user has named it, so it must be there. `launcher` is for jobs
// that are resumed here. What `console` refers to outlives the source; a job that starts here
// prints to it.
std::unique_ptr<JobSource> makeLocalJobs(const std::string& runs, bool named,
                                         const LauncherOptions& launcher, const Console& console);

}  // namespace trainyard::cli
