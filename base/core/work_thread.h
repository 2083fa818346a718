// A thread that carries out pieces of work one after the other, in the order in which they came.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace trainyard {

// Thread-safe, but for stop() and finish(), which are one thread's.
class WorkThread {
 public:
  WorkThread();
  ~WorkThread();  // stop()
  WorkThread(const WorkThread&) = delete;
  WorkThread& operator=(const WorkThread&) = delete;

  // Work that comes after stop() or finish() is dropped. Called with any lock held.
  void add(std::function<void()> work);
  // Waits for the piece under way; what has not begun is dropped.
  void stop();
  // Waits for all, with what they add.
  void finish();

 private:
  enum class Ending { kNot, kWithAll, kAtOnce };
  void end(Ending how);
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  Ending ending_ = Ending::kNot;
  std::thread thread_;
};

}  // namespace trainyard
