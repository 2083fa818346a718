// What a run ran on: environment.json and the report's table of facts.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/process/child_process.h"
#include "nlohmann/json.hpp"
#include "trainyard/v1/job.pb.h"

namespace trainyard::cli {

// Version, CPU, cores and memory of this machine.
nlohmann::ordered_json describeMachine();

// Asks trainyard-runtime for its version (LibTorch, BLAS) while the run goes on: it takes half a
// second to start.
class RuntimeVersion {
 public:
  explicit RuntimeVersion(const std::string& runtime_path);
  // What it said; null when it did not answer by `deadline`.
  nlohmann::ordered_json take(TimePoint deadline);

 private:
  std::optional<ChildProcess> child_;
  std::shared_ptr<std::string> text_;
};

// Name and value of what a reader of the report wants to know of the job, then of the machine.
std::vector<std::pair<std::string, std::string>> reportFacts(
    const v1::TrainingJob& job, const nlohmann::ordered_json& environment);

}  // namespace trainyard::cli
