// From a document to problems in words.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json.hpp"
#include "operator/job/internal/path.h"
#include "operator/job/job.h"

namespace trainyard::control::internal {

// Collects problems and finds the place of each.
class ProblemList {
 public:
  ProblemList(const Locations& locations, std::vector<JobProblem>* problems)
      : locations_(locations), problems_(problems) {}
  // Says nothing when `field` has a problem already: what follows from the first one would only
  // confuse.
  void add(const std::string& field, std::string message);
  bool has(const std::string& field) const;

 private:
  const Locations& locations_;
  std::vector<JobProblem>* problems_;
};

// As the apiserver does before it validates: drops null members, gives absent members that have a
// default their default (inside objects that exist), writes 2.0 as 2 where a whole number is
// expected.
void applyDefaults(nlohmann::ordered_json& value, const nlohmann::ordered_json& schema);

// Checks types, bounds, lengths, patterns, enumerations, required and unknown members, unique keys
// of lists. Covers every keyword that the schema may use (checkKeywords), so its verdict is
// complete; a test compares it with valijson's. valijson itself is not used here: it accepts
// unknown members, refuses 2.0 for a whole number, knows no lists with keys, has poor texts, and
// its patterns are std::regex, which recurses once per character.
void validate(const nlohmann::ordered_json& value, const nlohmann::ordered_json& schema,
              ProblemList& problems);

// The CRD's rules across fields (x-kubernetes-validations). A rule whose operands are missing or of
// the wrong type is passed over.
void validateAcross(const nlohmann::ordered_json& job, ProblemList& problems);

// Changes the document; see ParseOptions. Problems name the override as their file.
void applyOverride(const std::string& path, const std::string& value,
                   nlohmann::ordered_json& document, Locations& locations,
                   std::vector<JobProblem>* problems);

// The candidate that was probably meant, if any comes close.
std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string>& candidates);

}  // namespace trainyard::control::internal
