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
  // 0: it could not be started.
  pid_t pid() const { return child_ ? child_->pid() : 0; }
  // Takes note of its end, so that it does not stay a zombie.
  void poll();
  // What it said; null when it did not answer by `deadline`.
  nlohmann::ordered_json take(TimePoint deadline);

 private:
  std::optional<ChildProcess> child_;
  std::shared_ptr<std::string> text_;
};

// Name and value of what a reader of the report wants to know of the job, with what its tasks run
// (cli/run/programs.h), then of the machine.
std::vector<std::pair<std::string, std::string>> reportFacts(
    const v1::TrainingJob& job, const std::vector<std::string>& programs,
    const nlohmann::ordered_json& environment);

}  // namespace trainyard::cli
