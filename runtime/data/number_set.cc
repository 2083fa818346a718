#include "runtime/data/number_set.h"

#include <algorithm>
#include <iterator>

namespace trainyard::runtime {

NumberSet::NumberSet(const Ranges& ranges) {
  for (const v1::NumberRange& range : ranges) add(range.first(), range.end());
}

void NumberSet::write(Ranges& ranges) const {
  ranges.Clear();
  for (const auto& [first, end] : ranges_) {
    v1::NumberRange* range = ranges.Add();
    range->set_first(first);
    range->set_end(end);
  }
}

void NumberSet::add(std::int64_t first, std::int64_t end) {
  if (end <= first) return;
  // The range that begins before this one's end and reaches it, and all between.
  auto at = ranges_.upper_bound(first);
  if (at != ranges_.begin() && std::prev(at)->second >= first) --at;
  while (at != ranges_.end() && at->first <= end) {
    first = std::min(first, at->first);
    end = std::max(end, at->second);
    at = ranges_.erase(at);
  }
  ranges_[first] = end;
}

void NumberSet::add(const NumberSet& others) {
  for (const auto& [first, end] : others.ranges_) add(first, end);
}

void NumberSet::remove(std::int64_t first, std::int64_t end) {
  if (end <= first) return;
  auto at = ranges_.upper_bound(first);
  if (at != ranges_.begin() && std::prev(at)->second > first) --at;
  while (at != ranges_.end() && at->first < end) {
    const auto [from, to] = *at;
    at = ranges_.erase(at);
    if (from < first) ranges_[from] = first;
    if (to > end) ranges_[end] = to;
  }
}

void NumberSet::remove(const NumberSet& others) {
  for (const auto& [first, end] : others.ranges_) remove(first, end);
}

bool NumberSet::contains(std::int64_t number) const {
  const auto after = ranges_.upper_bound(number);
  return after != ranges_.begin() && std::prev(after)->second > number;
}

}  // namespace trainyard::runtime
