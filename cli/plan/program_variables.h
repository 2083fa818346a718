// The variables of a model that a job's own program declares: it is run until it has.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "base/core/status.h"
#include "runtime/catalog/variable.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::cli {

// Has `runtime` (trainyard-runtime) start the program of `job` as its first worker, in this
// machine's environment and that of its template, and end it when it has declared its model; what
// the program prints goes to `output`. Volumes of the job are folders (operator/local/volumes.h).
// global_step first. INVALID_ARGUMENT says what became of it.
StatusOr<std::vector<runtime::Variable>> programVariables(const std::string& runtime,
                                                          const v1::TrainingJob& job,
                                                          std::ostream& output);

}  // namespace trainyard::cli
