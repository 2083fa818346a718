// The network of network.h on a device of LibTorch's, by LibTorch's operators alone. Weights and
// computation are on the device; parameter() is the host's copy of a weight, which is copied to the
// device before each pass, and gradients are copied to the host one by one while the device goes
// on, unless they are wanted on the device.
//
// The device is given the whole pass before the first gradient is waited for; each is delivered
// when its copy is there, or on the device when it is computed. Dropout leaves out the units that
// network.h's leaves out, and the loss is computed in 64 bits as there, so that the two differ by
// rounding only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/model/network.h"

namespace trainyard::runtime {

// As makeNetwork(). `device`: LibTorch's name of it, "cuda:0" or "cpu".
std::unique_ptr<Network> makeDeviceNetwork(
    const std::vector<std::vector<std::int64_t>>& parameter_shapes,
    const std::vector<LayerSpec>& layers, std::uint64_t seed, const std::string& device);

}  // namespace trainyard::runtime
