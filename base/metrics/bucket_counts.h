// Observations counted by bucket, to be sent and added up.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace trainyard {

// Not thread-safe.
class BucketCounts {
 public:
  // `bounds`: ascending upper bounds, inclusive; outlive this. What is above them all has a bucket
  // of its own.
  explicit BucketCounts(std::span<const double> bounds)
      : bounds_(bounds), counts_(bounds.size() + 1) {}

  void observe(double value) {
    const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), value);
    ++counts_[static_cast<std::size_t>(at - bounds_.begin())];
    sum_ += value;
  }
  // One number for each bound and one for the rest; not cumulative.
  const std::vector<std::uint64_t>& counts() const { return counts_; }
  double sum() const { return sum_; }
  std::span<const double> bounds() const { return bounds_; }

 private:
  std::span<const double> bounds_;
  std::vector<std::uint64_t> counts_;
  double sum_ = 0;
};

}  // namespace trainyard
