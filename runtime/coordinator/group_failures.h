// Strategy AllReduce: groups in a row that came to nothing.
#pragma once

#include <cstdint>

namespace trainyard::runtime {

class GroupFailures {
 public:
  // One more, when `progress` was complete. True: without a step between them there were too many.
  bool add(std::int64_t progress) {
    in_a_row_ = progress > failed_at_ ? 1 : in_a_row_ + 1;
    failed_at_ = progress;
    return in_a_row_ >= kMost;
  }
  int inARow() const { return in_a_row_; }

 private:
  static constexpr int kMost = 20;
  int in_a_row_ = 0;
  std::int64_t failed_at_ = -1;
};

}  // namespace trainyard::runtime
