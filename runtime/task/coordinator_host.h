// What the process that hosts the job's coordinator does for it: what the job says, the checkpoints
// that are there, the rest of a manifest, the record of the end.
#pragma once

#include <memory>
#include <string>

#include "base/core/status.h"
#include "runtime/coordinator/service.h"
#include "runtime/optimizer/optimizer.h"
#include "runtime/placement/placement.h"
#include "runtime/task/options.h"

namespace trainyard::runtime {

// The coordinator of the job, with the newest whole checkpoint of the job directory; the damaged
// ones are named in the log. `options`, `placement` and `optimizer` must outlive it;
// `optimizer_name` is for manifests. Errors: training.initFrom is no checkpoint of this model.
StatusOr<std::unique_ptr<CoordinatorService>> startCoordinator(const TaskOptions& options,
                                                               const std::string& job_digest,
                                                               const Placement& placement,
                                                               const Optimizer& optimizer,
                                                               std::string optimizer_name);

}  // namespace trainyard::runtime
