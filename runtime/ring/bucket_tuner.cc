#include "runtime/ring/bucket_tuner.h"

#include <algorithm>
#include <utility>

#include "base/core/check.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace trainyard::runtime::ring {
namespace {

std::string sizeText(std::int64_t bytes) {
  constexpr std::int64_t kMiB = 1 << 20;
  return bytes % kMiB == 0 ? fmt::format("{} MiB", bytes / kMiB) : fmt::format("{} bytes", bytes);
}

// Where each bucket begins.
std::vector<std::size_t> cutsOf(std::span<const collective::PlannedTensor> tensors,
                                std::int64_t bytes) {
  std::vector<std::size_t> cuts;
  for (const collective::Bucket& bucket : collective::planBuckets(tensors, bucketsOf(bytes)))
    cuts.push_back(bucket.parts.front().tensor);
  return cuts;
}

}  // namespace

collective::BucketSizes bucketsOf(std::int64_t bytes) {
  collective::BucketSizes sizes;
  sizes.bytes = bytes;
  sizes.first_bytes = std::min(sizes.first_bytes, bytes);
  return sizes;
}

std::vector<std::int64_t> differingSizes(std::span<const collective::PlannedTensor> tensors,
                                         std::span<const std::int64_t> sizes) {
  std::vector<std::int64_t> differing;
  std::vector<std::vector<std::size_t>> seen;
  for (const std::int64_t size : sizes) {
    std::vector<std::size_t> cuts = cutsOf(tensors, size);
    if (std::find(seen.begin(), seen.end(), cuts) != seen.end()) continue;
    seen.push_back(std::move(cuts));
    differing.push_back(size);
  }
  return differing;
}

BucketTuner::BucketTuner(std::vector<std::int64_t> sizes)
    : sizes_(std::move(sizes)), taken_(sizes_.size()) {
  TY_CHECK(!sizes_.empty(), "a size to take");
  if (sizes_.size() == 1) chosen_ = sizes_[0];
}

std::int64_t BucketTuner::size() const {
  if (chosen_ != 0) return chosen_;
  const int tried = std::max(0, steps_ - kWarmUp);
  return sizes_[static_cast<std::size_t>(tried) % sizes_.size()];
}

void BucketTuner::took(double seconds) {
  if (chosen_ != 0) return;
  TY_CHECK(!reports(), "what was reported is chosen from");
  if (steps_ >= kWarmUp) {
    taken_[static_cast<std::size_t>(steps_ - kWarmUp) % sizes_.size()].push_back(seconds);
  }
  ++steps_;
}

bool BucketTuner::reports() const {
  return chosen_ == 0 && steps_ == kWarmUp + kTries * static_cast<int>(sizes_.size());
}

std::vector<double> BucketTuner::times() const {
  TY_CHECK(reports(), "all sizes are tried");
  std::vector<double> medians;
  for (std::vector<double> times : taken_) {
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    medians.push_back(*middle);
  }
  return medians;
}

void BucketTuner::choose(std::span<const double> sums, int ranks) {
  TY_CHECK(reports() && sums.size() == sizes_.size(), "a time for each size");
  const auto fastest = std::min_element(sums.begin(), sums.end());
  chosen_ = sizes_[static_cast<std::size_t>(fastest - sums.begin())];
  means_.assign(sums.begin(), sums.end());
  for (double& mean : means_) mean /= ranks;
}

void BucketTuner::agree(std::int64_t chosen) {
  if (sizes_.size() == 1) return;
  chosen_ = chosen;
  steps_ = 0;
  for (std::vector<double>& times : taken_) times.clear();
}

std::string BucketTuner::summary() const {
  std::vector<std::string> times;
  for (std::size_t i = 0; i < means_.size(); ++i)
    times.push_back(fmt::format("{:.1f} ms with {}", 1e3 * means_[i], sizeText(sizes_[i])));
  return fmt::format("buckets of {} are the fastest: steps took {}", sizeText(chosen_),
                     fmt::join(times, ", "));
}

}  // namespace trainyard::runtime::ring
