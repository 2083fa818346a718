// `trainyard checkpoint inspect`: what a checkpoint directory holds, for people.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/core/clock.h"
#include "cli/command.h"
#include "runtime/checkpoint/checkpoint.h"

namespace trainyard::cli {

// Verifies and prints `manifests` (newest first) and `problems`, then the variables of the first.
// Returns an exit code: 0 only when everything is sound.
int inspectCheckpoints(const Console& console, const std::string& dir,
                       const std::vector<runtime::Manifest>& manifests,
                       const std::vector<std::string>& problems, UnixMillis now);

}  // namespace trainyard::cli
