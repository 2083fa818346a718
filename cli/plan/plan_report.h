// What `trainyard plan` says about a job, and how it is printed. Pure: no files, no clock, no
// terminal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/core/status.h"
#include "cli/plan/table_plan.h"
#include "nlohmann/json.hpp"
#include "runtime/placement/placement.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::cli {

// One parameter server. Bytes throughout.
struct PsPlan {
  std::int64_t held = 0;  // parts of variables, global_step's 4 bytes included
  double share = 0;       // of all bytes held
  // Payload of one sync step: every worker pushes a gradient and pulls the next weights of every
  // chunk here. Not counted: frames and headers (below 0.1 %); global_step, which travels in the
  // headers.
  std::int64_t in_per_step = 0;
  std::int64_t out_per_step = 0;
  // Synchronous mode: the mean gradients (others: the pushes) of the chunks of which this one keeps
  // replicas, from their server, and those of its own to another, or to the first worker.
  std::int64_t replica_in_per_step = 0;
  std::int64_t replica_out_per_step = 0;
  // Memory (runtime/catalog/memory.h): two versions of the weights, the optimizer's slots; what a
  // checkpoint holds while it is written, a copy of the slots and the weights of its version; two
  // versions and slots of another server's part, and the mean gradient of its own.
  std::int64_t weights = 0;
  std::int64_t slots = 0;
  std::int64_t snapshot = 0;
  std::int64_t replicas = 0;
  std::int64_t memory() const { return weights + slots + snapshot + replicas; }
};

struct PlanReport {
  std::string job;
  std::string model;
  std::string strategy;  // "FixedSize(2, axis 0), 1 rule"
  int workers = 0;       // processes: replicas x processesPerPod
  int slots = 0;         // arrays of the optimizer per variable
  runtime::Placement placement;
  std::int64_t parameters = 0;  // trainable elements
  std::int64_t trainable_bytes = 0;
  std::vector<PsPlan> ps;
  double hot_share = 0;
  // Largest over smallest number of bytes held; nothing where a ps holds none.
  std::optional<double> max_to_min;
  // Time of a step bound by the hottest ps over that of an even placement: hot share x number of
  // ps.
  double slowdown = 0;
  // A worker: the weights and the gradients; activations and libraries not counted.
  std::int64_t worker_weights = 0;
  std::int64_t worker_gradients = 0;
  // The first worker, beside that and not in the total: replicas of an only server's part, two
  // versions and slots.
  std::int64_t worker_replicas = 0;
  TablePlans tables;  // embeddings by rows, beside the variables
};

// `job` as loadJob() gives it; `script`: the variables of its TorchScript module or of its own
// program, global_step first (script_variables.h, program_variables.h), where it has one and they
// are known. INVALID_ARGUMENT names the field: no
// parameter servers or no known variables to place, or what catalogVariables(), place() and
// makeOptimizer() refuse.
StatusOr<PlanReport> makePlanReport(const v1::TrainingJob& job,
                                    const std::vector<runtime::Variable>& script = {});

// For people, at most 80 columns wide, ends with a newline. "ps0 4,524" is ps 0's bytes held.
std::string renderPlanText(const PlanReport& report);

// For scripts: keys only ever get added.
nlohmann::ordered_json renderPlanJson(const PlanReport& report);

}  // namespace trainyard::cli
