// The network of runtime/model/network.h as it was computed by LibTorch before oneDNN and OpenBLAS
// were called directly: what the native one is measured beside. No product has it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/model/network.h"

namespace trainyard::runtime {

// As makeNetwork().
std::unique_ptr<Network> makeTorchNetwork(
    const std::vector<std::vector<std::int64_t>>& parameter_shapes,
    const std::vector<LayerSpec>& layers, std::uint64_t seed);

}  // namespace trainyard::runtime
