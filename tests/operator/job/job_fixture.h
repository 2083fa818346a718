// What the tests of job files share.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "operator/job/job.h"

namespace trainyard::control::testing {

using Json = nlohmann::ordered_json;

// One case of tests/conformance/validation/cases.yaml.
struct ValidationCase {
  std::string name;
  Json document;
  bool valid = false;
  std::string field;
  std::string message;  // POSIX extended regular expression
};
std::vector<ValidationCase> validationCases();
// What a case of either table there begins with.
Json documentOf(const Json& table, const Json& one);

// A path from the root of the source tree.
std::string sourcePath(const std::string& relative);
std::string readSource(const std::string& relative);
// YAML that must be right.
Json yaml(const std::string& text);

// The smallest valid job, as text and as a document.
extern const char* const kSmallJob;

// All problems of `text` as lines; empty when it is valid.
std::vector<std::string> problemsOf(const std::string& text, const ParseOptions& options = {});

// Whether a JSON Schema validator other than ours (valijson) accepts the document.
bool valijsonAccepts(const Json& document, const Json& schema);

}  // namespace trainyard::control::testing
