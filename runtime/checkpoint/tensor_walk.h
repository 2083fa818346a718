// Whole tensors of a checkpoint in pieces that fit in memory.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint.h"

namespace trainyard::runtime {

// Calls `sink` with the bytes of a variable's weights (slot "") or slot, front to back. Stops at
// the first error.
Status walkTensor(const CheckpointReader& reader, const ManifestVariable& variable,
                  const std::string& slot,
                  const std::function<Status(std::span<const std::byte>)>& sink);

// The manifest's variables by name, and slots by name.
std::vector<ManifestVariable> sortedVariables(const Manifest& manifest);
std::vector<std::string> sortedSlots(const Manifest& manifest);

}  // namespace trainyard::runtime
