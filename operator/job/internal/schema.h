// The schema of a TrainingJob, as built into the program.
#pragma once

#include <string_view>

#include "base/core/status.h"
#include "nlohmann/json.hpp"

namespace trainyard::control::internal {

// The texts of deploy/crds.yaml and of object_meta.yaml.
std::string_view crdText();
std::string_view objectMetaText();

// openAPIV3Schema of the CustomResourceDefinition, with metadata described, and apiVersion, kind
// and metadata required. Parsed at the first call; thread-safe.
const nlohmann::ordered_json& jobSchema();

inline constexpr std::string_view kApiVersion = "trainyard.dev/v1alpha1";
inline constexpr std::string_view kKind = "TrainingJob";

// INVALID_ARGUMENT naming the first keyword that validate() does not implement.
Status checkKeywords(const nlohmann::ordered_json& schema);

// Whether the apiserver, and so we, take the value as it comes.
bool isOpaque(const nlohmann::ordered_json& schema);
// Whether the value is a whole number (within minimum and maximum) or text (that fits the pattern).
bool isIntOrText(const nlohmann::ordered_json& schema);
// A member's schema; nullptr for one that the schema does not know.
const nlohmann::ordered_json* memberSchema(const nlohmann::ordered_json& schema,
                                           const std::string& key);

}  // namespace trainyard::control::internal
