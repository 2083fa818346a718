// A TrainingJob as text: YAML or JSON in, JSON out. The only user of yaml-cpp.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/core/status.h"
#include "base/json/proto_json.h"
#include "nlohmann/json.hpp"
#include "trainyard/v1/job.pb.h"

namespace trainyard::control {

// One thing wrong with a job file: "job.yaml:12: spec.worker.replicas: 0 is below the minimum 1".
struct JobProblem {
  std::string file;
  int line = 0;         // 1-based; 0: not known (a --set, a default)
  std::string field;    // "spec.worker.replicas"
  std::string message;  // what is wrong and what was expected
  std::string text() const;
};

struct ParseOptions {
  // From --set: path below the document ("spec.training.steps") or below spec ("training.steps"),
  // value as YAML. Applied before defaults and validation.
  std::vector<std::pair<std::string, std::string>> overrides;
};

// Parse, apply defaults from the schema, validate by schema and by the rules that CEL states in the
// CRD. A status in the text is kept: who creates a job from a file drops it.
// On failure `problems` (may be null) holds every problem found (at least one), in file order, and
// the Status is INVALID_ARGUMENT with the first one's text.
StatusOr<v1::TrainingJob> parseJob(std::string_view text, std::string_view file,
                                   const ParseOptions& options, std::vector<JobProblem>* problems);
// Reads the file, then as above. NOT_FOUND etc. name the file.
StatusOr<v1::TrainingJob> loadJob(const std::string& path, const ParseOptions& options,
                                  std::vector<JobProblem>* problems);

// YAML in block style, for people (resolved job files).
std::string toYaml(const nlohmann::ordered_json& json);

// What this release's `run` cannot do although it is valid: UNIMPLEMENTED "<field>: ... not in this
// release", else OK.
Status checkSupported(const v1::TrainingJob& job);

}  // namespace trainyard::control
