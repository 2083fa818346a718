// YAML files that are no jobs, as JSON.
#pragma once

#include <string_view>

#include "base/core/status.h"
#include "nlohmann/json.hpp"

namespace trainyard::control {

// The one document of `text`, read as a job's file is (YAML 1.2, core schema). INVALID_ARGUMENT
// names `file`, line and what is wrong.
StatusOr<nlohmann::json> yamlToJson(std::string_view text, std::string_view file);

}  // namespace trainyard::control
