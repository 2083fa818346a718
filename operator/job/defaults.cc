#include <cmath>

#include "operator/job/internal/schema.h"
#include "operator/job/internal/validate.h"

namespace trainyard::control::internal {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kLargestExact = 9007199254740992.0;  // 2^53

void dropNulls(Json& object, const Json& schema) {
  for (auto member = object.begin(); member != object.end();) {
    const bool drop = member.value().is_null() && memberSchema(schema, member.key()) != nullptr;
    member = drop ? object.erase(member) : std::next(member);
  }
}

void addDefaults(Json& object, const Json& schema) {
  const auto properties = schema.find("properties");
  if (properties == schema.end()) return;
  for (const auto& [name, member] : properties->items()) {
    if (member.contains("default") && !object.contains(name)) object[name] = member.at("default");
  }
}

}  // namespace

void applyDefaults(Json& value, const Json& schema) {
  const bool whole = schema.value("type", "") == "integer" || isIntOrText(schema);
  if (value.is_number_float() && whole) {
    const double number = value.get<double>();
    if (std::abs(number) <= kLargestExact && number == std::trunc(number)) {
      value = static_cast<std::int64_t>(number);
    }
  } else if (value.is_array() && schema.contains("items")) {
    for (Json& item : value) applyDefaults(item, schema.at("items"));
  } else if (value.is_object()) {
    dropNulls(value, schema);
    addDefaults(value, schema);
    for (auto& [name, member] : value.items()) {
      const Json* const known = memberSchema(schema, name);
      if (known != nullptr) applyDefaults(member, *known);
    }
  }
}

}  // namespace trainyard::control::internal
