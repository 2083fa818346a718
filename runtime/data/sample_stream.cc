#include "runtime/data/sample_stream.h"

#include <algorithm>
#include <numeric>

#include "base/core/check.h"
#include "base/core/rng.h"

namespace trainyard::runtime {
namespace {

// Uniform in [0, bound) by one multiplication; a division only in the rare case that it may be
// biased.
std::uint32_t below(Rng& rng, std::uint32_t bound) {
  std::uint64_t product = (rng.next() >> 32) * bound;
  if (static_cast<std::uint32_t>(product) < bound) {
    const std::uint32_t threshold = -bound % bound;  // 2^32 mod bound
    while (static_cast<std::uint32_t>(product) < threshold) product = (rng.next() >> 32) * bound;
  }
  return static_cast<std::uint32_t>(product >> 32);
}

}  // namespace

SampleStream::SampleStream(std::uint64_t seed, std::int64_t samples)
    : seed_(seed), samples_(samples) {
  TY_CHECK(samples >= 1 && samples <= kMaxSamples, "openData refuses other sizes");
}

const std::vector<std::uint32_t>& SampleStream::permutation(std::int64_t pass) {
  Pass& kept = passes_[pass % 2];
  if (kept.number == pass) return kept.order;
  kept.number = pass;
  kept.order.resize(samples_);
  std::iota(kept.order.begin(), kept.order.end(), 0u);
  Rng rng(mixKey(mixKey(seed_, "sample stream"), static_cast<std::uint64_t>(pass)));
  for (auto i = static_cast<std::uint32_t>(samples_ - 1); i > 0; --i) {
    std::swap(kept.order[i], kept.order[below(rng, i + 1)]);
  }
  return kept.order;
}

void SampleStream::lookUp(std::int64_t first, std::span<std::int64_t> out) {
  TY_CHECK(first >= 0, "positions count from 0");
  std::size_t done = 0;
  while (done < out.size()) {
    const std::int64_t position = first + static_cast<std::int64_t>(done);
    const std::vector<std::uint32_t>& order = permutation(position / samples_);
    const std::int64_t offset = position % samples_;
    const std::size_t count =
        std::min(out.size() - done, static_cast<std::size_t>(samples_ - offset));
    std::copy_n(order.begin() + offset, count, out.begin() + static_cast<std::ptrdiff_t>(done));
    done += count;
  }
}

std::pair<std::int64_t, std::int64_t> evaluationSlice(std::int64_t n, int ranks, int rank) {
  return {n * rank / ranks, n * (rank + 1) / ranks};
}

}  // namespace trainyard::runtime
