// What is asked of one table's rows in some partitions, counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/core/rng.h"
#include "runtime/rows/row_table.h"
#include "runtime/rows/space_saving.h"

namespace trainyard::runtime::rows {

// Takes each of many things with probability 1 / every, whatever they are and whichever others it
// takes: so an id's share of what is taken is expected to be its share of all. The numbers of those
// passed over are geometric, a random number for each that is taken. (Every 64th would not do: ids
// travel sorted and come again in each step, so that it may always meet the same.)
class RandomSample {
 public:
  // Precondition: every > 1.
  RandomSample(std::uint64_t seed, double every);

  // Calls use(i) for each that it takes of the next `count` things, in their order.
  template <typename Use>
  void take(std::size_t count, Use use) {
    std::size_t at = 0;
    while (skip_ < count - at) {
      at += skip_;
      use(at++);
      skip_ = nextSkip();
    }
    skip_ -= count - at;
  }

 private:
  std::size_t nextSkip();

  Rng rng_;
  double log_passed_;  // ln(1 - 1 / every)
  std::size_t skip_ = 0;
};

struct RowCounts {
  std::uint64_t created = 0;
  std::uint64_t refused = 0;  // gradients of ids for which a full table has no row
  std::uint64_t evicted = 0;  // rows that went by themselves
  std::uint64_t pulled = 0;   // rows that were given, those that are not there included
  std::uint64_t pushed = 0;   // rows that ranks brought gradients for
};

// Not thread-safe; takes no memory once it is made.
class RowMeter {
 public:
  // Counters for the ids that are pulled most, and the sample of pulls that they see.
  static constexpr std::size_t kHotIds = 1024;
  static constexpr double kSampleEvery = 64;

  // `seed`: another one for each table and range of partitions.
  explicit RowMeter(std::uint64_t seed) : sample_(seed, kSampleEvery), hot_(kHotIds) {}

  void pulled(std::span<const std::uint64_t> ids);
  void pushed(std::size_t rows) { counts_.pushed += rows; }
  void updated(const RowUpdateResult& result);
  void evicted(std::int64_t rows) { counts_.evicted += static_cast<std::uint64_t>(rows); }

  const RowCounts& counts() const { return counts_; }
  const SpaceSaving& hot() const { return hot_; }

 private:
  RowCounts counts_;
  RandomSample sample_;
  SpaceSaving hot_;
};

}  // namespace trainyard::runtime::rows
