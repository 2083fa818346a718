// Jobs of which several run at once: most of the time of a job whose tasks die or hang is waiting,
// for back-offs and deadlines.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

namespace trainyard {

constexpr int kSideBySide = 6;

// `work(i)` for i = 0 to count - 1, in threads of their own.
inline void sideBySide(std::size_t count, const std::function<void(std::size_t)>& work,
                       int threads_at_most = kSideBySide) {
  std::atomic<std::size_t> next = 0;
  std::vector<std::jthread> threads;
  for (int t = 0; t < threads_at_most; ++t) {
    threads.emplace_back([&] {
      for (std::size_t i = next++; i < count; i = next++) work(i);
    });
  }
}

}  // namespace trainyard
