// The flags of `trainyard plan` that ask for seconds.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/core/status.h"
#include "runtime/cost/cost_model.h"

namespace CLI {
class App;
}

namespace trainyard::cli {

// As typed; addCostFlags() checks each value by itself.
struct CostFlags {
  std::string model;       // instead of a job: a model of the catalogue
  std::string parameters;  // or a number of parameters
  int machines = 0;        // 0: not given
  std::string scale;
  std::string bandwidth;
  double step_seconds = 0;
  std::string duplex = "full";
  double latency_seconds = 0;
};

void addCostFlags(CLI::App& plan, CostFlags& flags);

// What they ask for together. model_bytes of the input are not set.
struct CostQuestion {
  runtime::CostInput input;
  std::optional<int> machines;
  std::vector<int> scale;
  bool comparesMachines() const { return machines || !scale.empty(); }
};

// Nothing where no seconds are asked for. `job_step_seconds`: the job's simulatedStepSeconds, which
// stands for --step-seconds where that is not given; 0: none. INVALID_ARGUMENT names the flag that
// is missing.
StatusOr<std::optional<CostQuestion>> costQuestion(const CostFlags& flags, double job_step_seconds);

}  // namespace trainyard::cli
