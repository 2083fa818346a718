// Which version of the weights is complete, by what workers hold.
#pragma once

#include <algorithm>
#include <cstdint>

namespace trainyard::runtime {

// With parameter servers one worker that holds a version proves that every chunk has reached it.
// In an all-reduce it takes two: a step that one rank has taken, and no other yet, dies with it.
class HeldVersions {
 public:
  // `by_two`: in an all-reduce of several ranks. `known`: was complete before.
  HeldVersions(bool by_two, std::int64_t known) : by_two_(by_two), newest_(known), second_(known) {}

  void add(std::int64_t version) {
    second_ = std::max(second_, std::min(newest_, version));
    newest_ = std::max(newest_, version);
  }
  std::int64_t complete() const { return by_two_ ? second_ : newest_; }

 private:
  const bool by_two_;
  std::int64_t newest_;
  std::int64_t second_;
};

}  // namespace trainyard::runtime
