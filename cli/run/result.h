// How a run ended, in one line for scripts and in result.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/core/status.h"
#include "nlohmann/json.hpp"

namespace trainyard::cli {

struct RunResult {
  std::string outcome;                // succeeded | failed | interrupted | suspended | deleted
  std::string reason;                 // failed: why
  std::optional<std::int64_t> steps;  // newest complete step; nothing: nobody knows
  std::optional<double> accuracy;
  std::optional<double> auc;          // of models that tell clicks
  std::optional<double> calibration;  // of the same
  std::optional<double> loss;
  std::optional<double> examples_per_second;
  // Where the update mode has such (docs/update_modes.md), since ps-0's process started:
  std::optional<std::int64_t> skipped;  // gradients that came too late for their step
  std::optional<std::int64_t> spread;   // most pushes that one worker was ahead of another
  std::optional<std::int64_t> partial;  // pushes of workers that died in between
  double seconds = 0;
  std::string dir;  // as the user gave it
};

// "result: succeeded steps=700 accuracy=0.8931 loss=0.2914 examples_per_second=2510 seconds=76.4
// dir=runs/fashion", "result: interrupted step=450 ...", "result: failed reason=... ...". A value
// with blanks or quotes stands in double quotes, backslash before quote and backslash.
std::string resultLine(const RunResult& result);

nlohmann::ordered_json resultJson(const RunResult& result);
// INVALID_ARGUMENT when it is not what resultJson() gives.
StatusOr<RunResult> resultFromJson(const std::string& text);

}  // namespace trainyard::cli
