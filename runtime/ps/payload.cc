#include "runtime/ps/payload.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/core/check.h"
#include "runtime/tensor/kernels.h"

namespace trainyard::runtime::ps {
namespace {

// Of one pool: the bodies that arrive at a time, and what is kept for the next burst.
constexpr std::size_t kMostKept = 64;

}  // namespace

std::span<const std::byte> HeldPayload::part(std::size_t at, std::size_t elements) const {
  TY_CHECK((at + elements) * sizeof(float) <= bytes_.size(), "the caller has compared the sizes");
  return bytes_.subspan(at * sizeof(float), elements * sizeof(float));
}

void HeldPayload::copyTo(std::span<float> out, std::size_t at) const {
  std::memcpy(out.data(), part(at, out.size()).data(), out.size_bytes());
}

void HeldPayload::addTo(std::span<float> acc, std::size_t at) const {
  addFloats(acc.data(), part(at, acc.size()).data(), static_cast<std::int64_t>(acc.size()));
}

std::shared_ptr<std::byte[]> BodyPool::take(std::size_t bytes) {
  std::size_t size = bytes;
  std::unique_ptr<std::byte[]> buffer;
  {
    std::lock_guard lock(free_->mutex);
    auto& buffers = free_->buffers;
    const auto fits = std::find_if(buffers.rbegin(), buffers.rend(),
                                   [&](const auto& kept) { return kept.first >= bytes; });
    if (fits != buffers.rend()) {
      size = fits->first;
      buffer = std::move(fits->second);
      std::swap(*fits, buffers.back());
      buffers.pop_back();
    }
  }
  if (buffer == nullptr) buffer = std::make_unique_for_overwrite<std::byte[]>(bytes);
  std::byte* const data = buffer.get();
  auto give_back = [free = free_, size, kept = std::move(buffer)](std::byte*) mutable {
    std::lock_guard lock(free->mutex);
    if (free->buffers.size() < kMostKept) free->buffers.emplace_back(size, std::move(kept));
  };
  // A deleter must be copyable.
  auto deleter = std::make_shared<decltype(give_back)>(std::move(give_back));
  return {data, [deleter](std::byte* bytes_given) { (*deleter)(bytes_given); }};
}

}  // namespace trainyard::runtime::ps
