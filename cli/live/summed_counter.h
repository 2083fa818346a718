// A counter of a process, summed over the processes that had it one after the other.
#pragma once

namespace trainyard::cli {

struct SummedCounter {
  double before = 0;  // of the processes that ended
  double last = 0;
  void add(double value) {
    if (value < last) before += last;
    last = value;
  }
  double total() const { return before + last; }
};

}  // namespace trainyard::cli
