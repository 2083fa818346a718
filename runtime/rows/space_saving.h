// Which ids of a stream are frequent, in fixed memory: the Space-Saving algorithm of Metwally,
// Agrawal and El Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data Streams"
// (ICDT 2005).
//
// Of N observations on m counters the paper shows, for an id that has a counter:
//   count - error <= how often it was observed <= count,  error <= N / m,
// and that every id that was observed more than N / m times has one. All counts add up to N.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace trainyard::runtime::rows {

// Not thread-safe; takes its memory when it is made.
class SpaceSaving {
 public:
  struct Counter {
    std::uint64_t id = 0;
    std::uint64_t count = 0;
    std::uint64_t error = 0;  // by how much `count` may be too high
  };

  // Precondition: 1 <= counters <= 2^15.
  explicit SpaceSaving(std::size_t counters);

  void observe(std::uint64_t id);

  // Those of ids so far, by falling count.
  std::span<const Counter> counters() const { return counters_; }
  std::uint64_t observations() const { return observations_; }

 private:
  std::size_t cellOf(std::uint64_t id) const;
  void erase(std::size_t cell);
  void raise(std::size_t at);

  std::size_t most_;
  std::vector<Counter> counters_;
  std::vector<std::uint16_t> cells_;  // by hash of the id: where in counters_ it is
  std::uint64_t observations_ = 0;
};

// Of the parts of a stream that have no id in common, together: counters of the most frequent ids.
// With as many counters as each part has, what the paper says holds for the whole.
class FrequentIds {
 public:
  explicit FrequentIds(std::size_t counters) : most_(counters) {}

  void add(const SpaceSaving& part);
  // Of all observations that which is sure to be of these ids; 0 where there are none. No more than
  // the part that the so many most frequent ids have.
  double share() const;
  const std::vector<SpaceSaving::Counter>& counters() const { return counters_; }

 private:
  const std::size_t most_;
  std::vector<SpaceSaving::Counter> counters_;
  std::uint64_t observations_ = 0;
};

}  // namespace trainyard::runtime::rows
