// The chief's buffers (Model::saveState()) beside the checkpoints: buffers.step-N.pt holds them as
// they were when it had taken N steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/core/status.h"
#include "runtime/model/model.h"

namespace trainyard::runtime {

// Writes the file and removes all but the `keep` newest. Nothing to do for a model without buffers.
Status saveBuffers(const std::string& dir, std::int64_t step, int keep, Model& model);

// Whether those of exactly this step are there.
bool hasBuffers(const std::string& dir, std::int64_t step);

// Gives the model the newest buffers of `dir`, not those after `step` where one is given. False:
// there are none, or the model has no buffers. Errors name the file.
StatusOr<bool> restoreBuffers(const std::string& dir, std::optional<std::int64_t> step,
                              Model& model);

}  // namespace trainyard::runtime
