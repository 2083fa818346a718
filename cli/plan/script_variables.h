// The variables of a TorchScript module, which only the runtime can read.
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

// What the program prints: {"variables": [{"name": "weight", "shape": [36, 4]}, ...]}.
StatusOr<std::vector<runtime::Variable>> parseVariables(const std::string& text);

}  // namespace trainyard::cli
