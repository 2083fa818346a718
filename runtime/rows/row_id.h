// Which rows there are: ids of 64 bits, cut into a fixed number of partitions for a job, whatever
// the number of servers. A partition is to rows what a chunk is to dense variables.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

namespace trainyard::runtime::rows {

inline constexpr int kPartitions = 1024;

// The finaliser of splitmix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number
// Generators", OOPSLA 2014). Its constants are part of what checkpoints and servers agree on.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// Of a table: so that one id in two tables is in partitions that have nothing to do with each
// other.
std::uint64_t saltOf(std::string_view table);

// A row of a table with that salt, as it is looked for: uniform over all bits.
constexpr std::uint64_t hashOf(std::uint64_t id, std::uint64_t salt) {
  return mix64(id ^ salt);
}
constexpr int partitionOf(std::uint64_t hash) {
  return static_cast<int>(hash >> 54);
}

// Partitions [first, last).
struct PartitionRange {
  int first = 0;
  int last = kPartitions;
  bool operator==(const PartitionRange&) const = default;
  bool has(int partition) const { return first <= partition && partition < last; }
};

// How rows of one table are ordered where many travel together: by partition, then by id.
class RowOrder {
 public:
  explicit RowOrder(std::uint64_t salt) : salt_(salt) {}
  int partition(std::uint64_t id) const { return partitionOf(hashOf(id, salt_)); }
  std::pair<int, std::uint64_t> key(std::uint64_t id) const { return {partition(id), id}; }

 private:
  std::uint64_t salt_;
};

// Rows that one partition may hold of a table that may have `max_rows`: its even share m, and six
// standard deviations of a Poisson variable of that mean beside it, so that the first partition
// that is full says that the table is.
std::int64_t partitionCap(std::int64_t max_rows);

}  // namespace trainyard::runtime::rows
