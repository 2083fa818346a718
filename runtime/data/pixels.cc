#include "runtime/data/internal/pixels.h"

#include "base/core/check.h"

namespace trainyard::runtime::internal {

void toUnitFloats(std::span<const std::uint8_t> from, float* to) {
  const std::uint8_t* __restrict pixels = from.data();
  float* __restrict out = to;
  for (std::size_t i = 0; i < from.size(); ++i) out[i] = static_cast<float>(pixels[i]) / 255.0f;
}

void blendPixels(std::span<const std::uint8_t> pattern, std::uint8_t* pixels) {
  const std::uint8_t* __restrict from = pattern.data();
  std::uint8_t* __restrict to = pixels;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    to[i] = static_cast<std::uint8_t>((5u * from[i] + 3u * to[i]) / 8u);
  }
}

void prepareBatch(std::array<int, 3> shape, std::span<const std::int64_t> samples,
                  std::span<const std::int64_t> keys, std::int64_t size, Batch& out) {
  TY_CHECK(samples.size() == keys.size(), "every sample has a key");
  for (const std::int64_t sample : samples) {
    TY_CHECK(sample >= 0 && sample < size, "the stream gives samples of this set");
  }
  const std::size_t image = std::size_t{1} * shape[0] * shape[1] * shape[2];
  out.shape = shape;
  out.images.resize(samples.size() * image);
  out.labels.resize(samples.size());
  out.keys.assign(keys.begin(), keys.end());
}

}  // namespace trainyard::runtime::internal
