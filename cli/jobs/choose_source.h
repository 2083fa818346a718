// Which jobs a verb means.
#pragma once

#include <memory>

#include "base/core/status.h"
#include "cli/command.h"
#include "cli/jobs/flags.h"
#include "cli/jobs/job_source.h"
#include "cli/run/launcher.h"

namespace trainyard::cli {

// Those of a cluster where a flag says so, else the local ones. `launcher` is for local jobs that
// are resumed. What `console` refers to outlives the source. Errors: the cluster cannot be found
// (findCluster); nothing is asked of it yet.
StatusOr<std::unique_ptr<JobSource>> chooseSource(const JobFlags& flags, const Console& console,
                                                  const LauncherOptions& launcher = {});

}  // namespace trainyard::cli
