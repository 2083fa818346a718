// A model that torch.jit.save() wrote, computed by LibTorch's interpreter and autograd. Free of
// torch and of protobuf, as network.h is, whose interface it has.
//
// The module has
//   loss(batch: Dict[str, Tensor]) -> Tensor            one number, the mean over the batch
//   metrics(batch: Dict[str, Tensor]) -> Dict[str, Tensor]   "accuracy", and "loss" where it is not
//                                                       what loss() gives; only for evaluation
// and the batch is {"images": float32 [samples, channels, height, width] in [0, 1], "labels": int64
// [samples]}. Parameters that require gradients are trained.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/core/status.h"
#include "runtime/model/network.h"

namespace trainyard::runtime {

struct ScriptParameter {
  std::string name;  // as in named_parameters(), "features.0.weight"
  std::vector<std::int64_t> shape;
};

struct Script {
  std::vector<ScriptParameter> parameters;  // parameter i of the network
  bool has_metrics = false;
  // Parameters start with the file's values. forwardBackward() is in training mode, evaluate() is
  // not; random numbers in a pass are keyed by `seed` and the first of the samples' keys. Gradients
  // are delivered after the whole backward pass, last parameter first; those that autograd gives as
  // sparse rows (an embedding's) are written out, or come after the others as rows, where that is
  // asked for and loss() uses the parameter for nothing else. State: the module's buffers.
  std::unique_ptr<Network> network;
};

// INVALID_ARGUMENT names the file and what it lacks: no TorchScript, no loss(), another signature,
// no parameter to train, a parameter that is not float32 or shares its memory with another.
// `device`: where it computes, as of makeModel().
StatusOr<Script> loadScript(const std::string& path, std::uint64_t seed, const std::string& device);

}  // namespace trainyard::runtime
