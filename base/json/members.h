// Members of JSON that others wrote: what is not there, or of another type, reads as nothing.
#pragma once

#include <string>
#include <string_view>

#include "nlohmann/json.hpp"

namespace trainyard {

// null where `object` is no object or has no such member.
const nlohmann::json& member(const nlohmann::json& object, std::string_view name);
// "" where there is no text.
std::string textAt(const nlohmann::json& object, std::string_view name);
// 0 where there is no integer.
int numberAt(const nlohmann::json& object, std::string_view name);

}  // namespace trainyard
