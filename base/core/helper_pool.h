// Threads that take over pieces of somebody's work, who goes on with the rest meanwhile.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace trainyard {

// Thread-safe. Threads begin when they are needed first, and end with the object, which outlives
// all calls.
class HelperPool {
 public:
  // At most `most` threads, for all callers together; 0: callers do all work themselves.
  explicit HelperPool(std::size_t most) : most_(most) {}
  ~HelperPool();
  HelperPool(const HelperPool&) = delete;
  HelperPool& operator=(const HelperPool&) = delete;

  // Calls work(i) for each i below `count`, at most `at_once` (from 1) side by side, one of them on
  // this thread: so it gets on while all helpers are with others. With 1 in order. Once a call has
  // returned false no other is begun. Returns when all that were begun are over.
  void forEach(std::size_t count, std::size_t at_once,
               const std::function<bool(std::size_t)>& work);

 private:
  struct Batch;
  void addHelpersLocked();
  void help();

  const std::size_t most_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Batch*> wanted_;  // once for each helper that it may have yet
  std::size_t idle_ = 0;       // threads
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace trainyard
