// What the programs that measure an all-reduce have in common: the same arrays, the same checks,
// the same output, so that only the system in between differs.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "fmt/ranges.h"

namespace trainyard::bench {

struct AllReduceCase {
  int ranks = 2;
  std::size_t bytes = 4096;  // of float32
  int iterations = 50;
  int warm_up = 5;
};

// Whole numbers, so that every order of addition gives the same bits.
inline void fill(float* x, std::size_t n, int rank) {
  for (std::size_t i = 0; i < n; ++i)
    x[i] = static_cast<float>(i % 8 + 1) * static_cast<float>(rank + 1);
}
inline bool isSum(const float* x, std::size_t n, int ranks) {
  const auto factor = static_cast<float>(ranks * (ranks + 1) / 2);
  for (std::size_t i = 0; i < n; ++i) {
    if (x[i] != static_cast<float>(i % 8 + 1) * factor) return false;
  }
  return true;
}

// Of all threads of this process, in user and kernel mode.
inline double cpuMillis() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto millis = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_usec) * 1e-3;
  };
  return millis(usage.ru_utime) + millis(usage.ru_stime);
}

// `milliseconds[i]` of measured iteration i at the rank that took longest; the CPU time of all
// ranks in them, checks left out.
inline std::string toJson(const std::vector<double>& milliseconds, double cpu_ms) {
  return fmt::format("{{\"milliseconds\": [{:.5f}], \"cpu_ms\": {:.5f}}}",
                     fmt::join(milliseconds, ", "), cpu_ms);
}

}  // namespace trainyard::bench
