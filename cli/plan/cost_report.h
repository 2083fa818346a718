// What `trainyard plan` says about seconds: a job's own step, and what machines are best used for.
// Pure: no files, no clock, no terminal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/plan/plan_report.h"
#include "nlohmann/json.hpp"
#include "runtime/cost/cost_model.h"

namespace trainyard::cli {

// `input` for a model of so many trainable parameters, 4 bytes each.
runtime::CostInput costInput(std::int64_t parameters, runtime::CostInput input);

// One way to use the machines. Efficiency: steps of workers per second over those of as many
// machines that need not communicate.
struct Way {
  runtime::Split split;  // servers 0 where every machine is a worker
  double step_seconds = 0;
  double efficiency = 0;
};
struct MachinesRow {
  int machines = 0;
  std::optional<Way> dedicated;  // with the best split; nothing for one machine
  Way colocated;
  Way ring;
};
struct CostReport {
  std::string model;  // "vgg19", or empty where only the number of parameters is known
  std::int64_t parameters = 0;
  runtime::CostInput input;
  std::vector<MachinesRow> rows;  // ascending
  std::optional<int> best_split;  // the number of machines whose best split was asked for
};

// `machines`: whose best split to name, at least 2; `scale`: further rows. input.step_seconds > 0.
CostReport makeCostReport(const std::string& model, std::int64_t parameters,
                          const runtime::CostInput& input, std::optional<int> machines,
                          const std::vector<int>& scale);

// For people, at most 80 columns wide, ends with a newline.
std::string renderCostText(const CostReport& report);
// For scripts: keys only ever get added.
nlohmann::ordered_json renderCostJson(const CostReport& report);

// The job of `plan` on links and machines of `input`, whose model_bytes do not count here.
runtime::JobSeconds predictJob(const PlanReport& plan, const runtime::CostInput& input);
std::string renderPredictionText(const runtime::CostInput& input, const runtime::JobSeconds& job);
nlohmann::ordered_json renderPredictionJson(const runtime::CostInput& input,
                                            const runtime::JobSeconds& job);

}  // namespace trainyard::cli
