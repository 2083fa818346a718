// Which build this is.
#pragma once

#include <string>

#include "nlohmann/json.hpp"

namespace trainyard::cli {

std::string versionText();  // "0.1.0"
nlohmann::ordered_json versionJson();

}  // namespace trainyard::cli
