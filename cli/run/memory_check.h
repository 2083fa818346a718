// Whether all tasks of a job together fit into this machine's memory.
#pragma once

#include "base/core/status.h"
#include "base/process/memory.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::cli {

// RESOURCE_EXHAUSTED in one line that names what needs how much. Pure. OK for a job whose variables
// are not known without its files.
Status checkJobMemory(const v1::TrainingJob& job, const AvailableMemory& available);

}  // namespace trainyard::cli
