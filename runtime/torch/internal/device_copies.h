// Copies between the memory of the host and that of the device that computes. For a GPU the host's
// side is pinned, and the copies run beside the GPU's computing; for a device that computes in the
// host's memory they are plain ones. Only the .cc files of runtime/torch include it.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/model/network.h"

namespace trainyard::runtime {

// Memory of the host that `device` copies from and to fast.
at::TensorOptions hostOptions(const at::Device& device, at::ScalarType type);
// A copy of what lies at `data` in the host's memory, which may change when this returns.
at::Tensor toDevice(const void* data, at::IntArrayRef shape, at::ScalarType type,
                    const at::Device& device);

// The weights as the host sees them: written by others between passes, copied to the device before
// each.
class WeightCopies {
 public:
  // The host's begin with what the device's tensors hold, which stay the ones that are filled.
  explicit WeightCopies(std::vector<at::Tensor> on_device);

  std::span<float> host(std::size_t i);
  // Whatever the device is given to compute from now on finds the host's values. The host's may be
  // written again when a result of that has been waited for.
  void upload();

 private:
  std::vector<at::Tensor> device_;
  std::vector<at::Tensor> host_;
};

// The gradients of one pass on their way to the host, or to whoever wants them on the device.
// Nothing here waits for the device before deliver(), so that it is given the whole pass to compute
// at once, and copies what it has computed while it goes on.
class GradientCopies {
 public:
  explicit GradientCopies(const at::Device& device, bool on_device = false);

  // The tensor is kept, and must not be written to any more.
  void add(int parameter, const at::Tensor& gradient);
  // Each as soon as its copy is there, or where it stays on the device as soon as it is computed,
  // in the order of add().
  void deliver(const ParameterGradientSink& sink);

 private:
  struct Pending {
    int parameter = 0;
    at::Tensor source;  // of the copy, until it is done
    at::Tensor result;
    std::optional<c10::Event> done;  // none: it is there already
  };
  Pending computing(int parameter, const at::Tensor& gradient) const;
  Pending copyOf(int parameter, const at::Tensor& gradient) const;

  at::Device device_;
  bool on_device_;
  std::optional<c10::Stream> stream_;  // of the copies
  std::vector<Pending> pending_;
};

}  // namespace trainyard::runtime
