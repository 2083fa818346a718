// Jobs of which two run at once: most of the time of a job whose tasks die is waiting, for programs
// to load and for back-offs.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <thread>

namespace trainyard {

// `work(i)` for i = 0 to count - 1.
inline void sideBySide(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  const auto loop = [&] {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  std::thread other(loop);
  loop();
  other.join();
}

}  // namespace trainyard
