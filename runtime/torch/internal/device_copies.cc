#include "runtime/torch/internal/device_copies.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstring>
#include <thread>
#include <utility>

namespace trainyard::runtime {
namespace {

// Event::synchronize() is younger than the oldest LibTorch that is supported.
template <typename Event>
void await(Event& event) {
  if constexpr (requires { event.synchronize(); }) {
    event.synchronize();
  } else {
    while (!event.query()) std::this_thread::yield();
  }
}

}  // namespace

at::TensorOptions hostOptions(const at::Device& device, at::ScalarType type) {
  return at::TensorOptions().dtype(type).pinned_memory(!device.is_cpu());
}

at::Tensor toDevice(const void* data, at::IntArrayRef shape, at::ScalarType type,
                    const at::Device& device) {
  at::Tensor host = at::empty(shape, hostOptions(device, type));
  if (host.nbytes() > 0) std::memcpy(host.data_ptr(), data, host.nbytes());
  return host.to(device, /*non_blocking=*/true);
}

WeightCopies::WeightCopies(std::vector<at::Tensor> on_device) : device_(std::move(on_device)) {
  const at::NoGradGuard unrecorded;
  for (const at::Tensor& tensor : device_) {
    at::Tensor host = at::empty(tensor.sizes(), hostOptions(tensor.device(), at::kFloat));
    host.copy_(tensor);
    host_.push_back(std::move(host));
  }
}

std::span<float> WeightCopies::host(std::size_t i) {
  return {host_[i].data_ptr<float>(), static_cast<std::size_t>(host_[i].numel())};
}

void WeightCopies::upload() {
  const at::NoGradGuard unrecorded;  // parameters of a module require gradients
  for (std::size_t i = 0; i < device_.size(); ++i) {
    device_[i].copy_(host_[i], /*non_blocking=*/true);
  }
}

GradientCopies::GradientCopies(const at::Device& device, bool on_device)
    : device_(device), on_device_(on_device) {
  if (device.is_cpu() || on_device) return;
  stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

void GradientCopies::add(int parameter, const at::Tensor& gradient) {
  const at::Tensor whole = gradient.contiguous();  // itself, as a rule
  if (device_.is_cpu()) {
    pending_.push_back({parameter, {}, whole, std::nullopt});
  } else {
    pending_.push_back(on_device_ ? computing(parameter, whole) : copyOf(parameter, whole));
  }
}

GradientCopies::Pending GradientCopies::computing(int parameter, const at::Tensor& gradient) const {
  Pending pending{parameter, {}, gradient, c10::Event(device_.type())};
  pending.done->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  return pending;
}

GradientCopies::Pending GradientCopies::copyOf(int parameter, const at::Tensor& gradient) const {
  Pending pending{parameter, gradient,
                  at::empty(gradient.sizes(), hostOptions(device_, at::kFloat)),
                  c10::Event(device_.type())};
  c10::Event computed(device_.type());
  computed.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  computed.block(*stream_);
  const c10::StreamGuard copying(*stream_);
  pending.result.copy_(gradient, /*non_blocking=*/true);
  pending.done->record(*stream_);
  return pending;
}

void GradientCopies::deliver(const ParameterGradientSink& sink) {
  for (Pending& pending : pending_) {
    if (pending.done) await(*pending.done);
    pending.source.reset();
    const std::span<const float> values{pending.result.data_ptr<float>(),
                                        static_cast<std::size_t>(pending.result.numel())};
    sink(pending.parameter, values, std::make_shared<at::Tensor>(std::move(pending.result)), {});
  }
  pending_.clear();
}

}  // namespace trainyard::runtime
