// Fields of the objects that a run leaves, read for what they may hold: absent and of another type
// are the same. Json is nlohmann::json or ordered_json.
#pragma once

#include <optional>
#include <string>

#include "nlohmann/json.hpp"

namespace trainyard::cli {

template <typename Json>
std::optional<double> numberField(const Json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_number()) return std::nullopt;
  return found->template get<double>();
}

template <typename Json>
std::string textField(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->template get<std::string>()
                                                   : std::string();
}

}  // namespace trainyard::cli
