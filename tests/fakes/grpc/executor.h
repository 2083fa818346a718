// The threads on which the fake calls back, as gRPC does: any of several, at any time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace trainyard::fakes {

// Thread-safe.
class Executor {
 public:
  using Work = std::function<void()>;
  using Time = std::chrono::steady_clock::time_point;

  // That of this process.
  static Executor& get();
  ~Executor();
  void post(Work work);
  void postAt(Time time, Work work);

 private:
  Executor();
  void run();
  void runTimers();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable wake_timers_;
  std::deque<Work> queue_;
  std::multimap<Time, Work> timers_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace trainyard::fakes
