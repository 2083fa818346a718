// A few steps of training by ranks that are threads: each with a model on its device, and gradients
// put together by an Exchange as jobs do it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/core/status.h"
#include "runtime/collective/group_device.h"

namespace trainyard::runtime::nccl::testing {

struct Training {
  int ranks = 1;
  // LibTorch's name of the device that a rank computes on.
  std::function<std::string(int rank)> compute;
  // What it brings to the group; none: everything goes over the host.
  std::function<StatusOr<collective::GroupDevice>(int rank)> device;
};

struct Trained {
  std::vector<double> losses;  // mean of each step
  std::vector<float> weights;  // of all variables, the same on all ranks
  bool on_device = false;
};

// INTERNAL when ranks end with different weights; else the first rank's error.
StatusOr<Trained> train(const Training& training);

// Of two vectors of one length, relative to the second's norm.
double distance(const std::vector<float>& ours, const std::vector<float>& theirs);

}  // namespace trainyard::runtime::nccl::testing
