// A set of whole numbers that come mostly one after the other: tickets, positions of the sample
// stream.
#pragma once

#include <cstdint>
#include <map>

#include "google/protobuf/repeated_ptr_field.h"
#include "trainyard/v1/coordinator.pb.h"

namespace trainyard::runtime {

// Takes memory for its gaps, not for its members. Not thread-safe.
class NumberSet {
 public:
  using Ranges = google::protobuf::RepeatedPtrField<v1::NumberRange>;

  NumberSet() = default;
  // What write() has written. A range without members is left out.
  explicit NumberSet(const Ranges& ranges);
  void write(Ranges& ranges) const;

  // The members of [first, end); nothing when end <= first.
  void add(std::int64_t first, std::int64_t end);
  void add(std::int64_t number) { add(number, number + 1); }
  void add(const NumberSet& others);
  void remove(std::int64_t first, std::int64_t end);
  void remove(const NumberSet& others);

  bool contains(std::int64_t number) const;
  // Above its greatest member; 0: it has none.
  std::int64_t end() const { return ranges_.empty() ? 0 : ranges_.rbegin()->second; }
  // first -> end, in order, with a gap before each but the first.
  const std::map<std::int64_t, std::int64_t>& ranges() const { return ranges_; }
  bool operator==(const NumberSet&) const = default;

 private:
  std::map<std::int64_t, std::int64_t> ranges_;
};

}  // namespace trainyard::runtime
