// What `trainyard doctor` says: one thing that it has looked at, how that is, and what to do.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/core/status.h"
#include "nlohmann/json.hpp"

namespace trainyard::cli {

enum class FindingLevel {
  kOk,
  kNote,     // good to know
  kUnknown,  // could not be asked, so it may be anything
  kWarning,  // something will not work, or not well
  kProblem,  // nothing will
};

struct Finding {
  std::string group;  // heading: "Programs"
  FindingLevel level = FindingLevel::kOk;
  std::string text;    // one line
  std::string advice;  // what to do; never empty of a warning, a problem and what is unknown
  bool operator==(const Finding&) const = default;
};

struct Diagnosis {
  std::string place;  // "this machine", "namespace lab of https://..."
  std::vector<Finding> findings;
};

// The findings of one group, as they come.
class FindingGroup {
 public:
  // `findings` outlives it.
  FindingGroup(std::string name, std::vector<Finding>& findings)
      : name_(std::move(name)), findings_(findings) {}

  void ok(std::string text) { add(FindingLevel::kOk, std::move(text), ""); }
  void note(std::string text, std::string advice = "") {
    add(FindingLevel::kNote, std::move(text), std::move(advice));
  }
  // "what: why"; without `advice` that of the reason.
  void unknown(const std::string& what, const Status& why, std::string advice = "");
  void warning(std::string text, std::string advice) {
    add(FindingLevel::kWarning, std::move(text), std::move(advice));
  }
  void problem(std::string text, std::string advice) {
    add(FindingLevel::kProblem, std::move(text), std::move(advice));
  }

 private:
  void add(FindingLevel level, std::string text, std::string advice);

  const std::string name_;
  std::vector<Finding>& findings_;
};

// A line for each finding under its group's heading, below it what to do, and the sum as last line.
std::string diagnosisText(const Diagnosis& diagnosis, bool colour);
nlohmann::ordered_json diagnosisJson(const Diagnosis& diagnosis);
// How many findings of the level there are.
int countOf(const Diagnosis& diagnosis, FindingLevel level);

}  // namespace trainyard::cli
