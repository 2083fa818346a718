#include "runtime/ring/device_buckets.h"

#include <utility>

namespace trainyard::runtime::ring {

StatusOr<std::unique_ptr<DeviceBuckets>> DeviceBuckets::make(
    std::shared_ptr<collective::DeviceMemory> memory, std::size_t elements) {
  std::unique_ptr<DeviceBuckets> buckets(new DeviceBuckets(std::move(memory), elements));
  const std::size_t bytes = elements * sizeof(float);
  TY_ASSIGN_OR_RETURN(buckets->device_, buckets->memory_->allocate(bytes));
  TY_ASSIGN_OR_RETURN(buckets->host_, buckets->memory_->allocateOnHost(bytes));
  return buckets;
}

DeviceBuckets::DeviceBuckets(std::shared_ptr<collective::DeviceMemory> memory, std::size_t elements)
    : memory_(std::move(memory)), elements_(elements) {}

// Nothing is copied to memory that is gone.
DeviceBuckets::~DeviceBuckets() {
  (void)memory_->finishToHost();
}

Status DeviceBuckets::put(std::size_t begin, std::span<const float> values, bool on_device) {
  std::byte* const to = device_.get() + begin * sizeof(float);
  const auto* from = reinterpret_cast<const std::byte*>(values.data());
  return on_device ? memory_->copyWithin(to, from, values.size_bytes())
                   : memory_->copyFromHost(to, from, values.size_bytes());
}

collective::Array DeviceBuckets::at(std::size_t begin, std::size_t elements) const {
  return {device_.get() + begin * sizeof(float), static_cast<std::int64_t>(elements),
          ElementType::kFloat32};
}

Status DeviceBuckets::startToHost(std::size_t begin, std::size_t elements) {
  const std::size_t offset = begin * sizeof(float);
  return memory_->startToHost(host_.get() + offset, device_.get() + offset,
                              elements * sizeof(float));
}

Status DeviceBuckets::finishToHost() {
  return memory_->finishToHost();
}

}  // namespace trainyard::runtime::ring
