// YAML 1.2 (core schema) to JSON.
#pragma once

#include <string_view>
#include <vector>

#include "nlohmann/json.hpp"
#include "operator/job/internal/path.h"
#include "operator/job/job.h"

namespace trainyard::control::internal {

struct YamlDocument {
  nlohmann::ordered_json value;
  Locations locations;  // of every value; a member's is the line of its key
};

// Reads the one document of `text`. Plain scalars become what YAML 1.2's core schema says (so `yes`
// and 1_000 are text, and quoted scalars always are). Refused because readers disagree on them or
// JSON cannot hold them: duplicate keys, merge keys, numbers such as 012, .inf and .nan, keys that
// are no scalars, several documents, text that is not UTF-8. Anchors are resolved. Appends what is
// wrong to `problems`; false when there was something.
bool readYaml(std::string_view text, std::string_view file, YamlDocument* document,
              std::vector<JobProblem>* problems);

// What a plain scalar is by the core schema: a number, a truth value, null or text.
// INVALID_ARGUMENT for 012, .inf, .nan and numbers beyond double's range.
StatusOr<nlohmann::ordered_json> plainScalar(std::string_view text);

}  // namespace trainyard::control::internal
