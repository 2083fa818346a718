#include "base/json/members.h"

namespace trainyard {

const nlohmann::json& member(const nlohmann::json& object, std::string_view name) {
  static const nlohmann::json none;
  if (!object.is_object()) return none;
  const auto found = object.find(name);
  return found == object.end() ? none : *found;
}

std::string textAt(const nlohmann::json& object, std::string_view name) {
  const nlohmann::json& value = member(object, name);
  return value.is_string() ? value.get<std::string>() : std::string();
}

int numberAt(const nlohmann::json& object, std::string_view name) {
  const nlohmann::json& value = member(object, name);
  return value.is_number_integer() ? value.get<int>() : 0;
}

}  // namespace trainyard
