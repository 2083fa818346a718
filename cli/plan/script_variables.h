// The variables of a model that only the runtime can read: a TorchScript module, or what the
// program of a run has declared.
#pragma once

#include <string>
#include <vector>

#include "base/core/status.h"
#include "runtime/catalog/variable.h"

namespace trainyard::cli {

// Asks `runtime` (the program trainyard-runtime-torch) for the variables of the module in the file
// `path`, global_step first; it takes about half a second. INVALID_ARGUMENT says what is wrong with
// the file, or that the program cannot be asked.
StatusOr<std::vector<runtime::Variable>> scriptVariables(const std::string& runtime,
                                                         const std::string& path);

// The same of trainyard-runtime: those that were declared in a run, from its directory or the file
// model.safetensors beside its checkpoints.
StatusOr<std::vector<runtime::Variable>> recordedVariables(const std::string& runtime,
                                                           const std::string& path);

// What the program prints; variables with "trained": false are left out: {"variables": [{"name":
// "weight", "shape": [36, 4]}, ...]}.
StatusOr<std::vector<runtime::Variable>> parseVariables(const std::string& text);

}  // namespace trainyard::cli
