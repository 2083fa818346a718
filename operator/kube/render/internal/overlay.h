// Filling in what a template leaves open. An ordered object moves its members when one is added:
// references to members end then.
#pragma once

#include <string>
#include <string_view>

#include "base/core/status.h"
#include "nlohmann/json.hpp"

namespace trainyard::control::internal {

using Json = nlohmann::ordered_json;

// Of a pod's spec: a whole number of seconds.
inline constexpr const char* kGraceField = "terminationGracePeriodSeconds";

// Sets the member unless it is there (null counts as absent).
void fill(Json& object, const std::string& key, Json value);
// The member, made an empty object where it is absent.
Json& objectIn(Json& object, const std::string& key);
// The member, made an empty list where it is absent.
Json& listIn(Json& object, const std::string& key);
bool has(const Json& object, const std::string& key);
// The item of the list whose member `key` is `value`; null when there is none.
Json* itemWith(Json& list, const std::string& key, const Json& value);
// Appends `item` unless one with the same `key` is there.
void addUnlessThere(Json& list, const std::string& key, Json item);

// The shape of what is read and filled in later: everything the overlay touches has the type that
// Kubernetes gives it. INVALID_ARGUMENT names the first field that has not. `pod` is a
// PodTemplateSpec, `path` where it stands.
Status checkShape(const Json& pod, const std::string& path);

}  // namespace trainyard::control::internal
