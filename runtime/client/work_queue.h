// The operations of a group, one after the other in the order in which they were given: by a thread
// of its own, or by whoever waits for one, which saves two threads the waking.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "base/core/clock.h"
#include "runtime/client/work.h"

namespace trainyard::runtime::client {

// Thread-safe, but for stop(), which is one thread's, after which nothing is carried out.
class WorkQueue {
 public:
  using Act = std::function<Status()>;

  explicit WorkQueue(std::shared_ptr<Monitor> monitor) : monitor_(std::move(monitor)) {}
  ~WorkQueue();  // stop()
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // Comes after all that was given before. The thread begins at once.
  std::shared_ptr<Work> add(Act act);
  // Carries `act` out after all that was given before, on this thread where nothing is under way.
  Status run(Act act);
  // Until `work` is done or `deadline` has passed (false).
  bool wait(const Work& work, TimePoint deadline);
  // Until it is done, or until `interrupted`, which is asked a few times a second, says so (false);
  // carries out what stands before it, and itself, where nothing is under way.
  bool help(const Work& work, const std::function<bool()>& interrupted);

  // Waits until `deadline` for what is under way (false: it still is); what has not begun fails
  // with `why`, as all that comes later. Call it again after having ended what is under way.
  bool stop(const Status& why, TimePoint deadline);
  // After stop(): until the thread has ended, and with it all that it calls.
  void join();

  // Calls `act` while nothing is under way, with that kept so; false, without calling it, where an
  // operation is.
  bool whileIdle(const std::function<void()>& act);

  // Whether this thread carries out an operation on behalf of a caller, and not of the queue's own.
  static bool onCaller();

 private:
  struct Entry {
    std::shared_ptr<Work> work;
    Act act;
  };
  std::shared_ptr<Work> push(Act act, bool wake);
  void loop();
  // Precondition: `lock` is held, entries_ is not empty, nothing is under way.
  void runFirst(std::unique_lock<std::mutex>& lock);
  // The same for what was never put there: nobody else needs to know of it. Leaves `lock` open.
  Status runAtOnce(const Act& act, std::unique_lock<std::mutex>& lock);

  const std::shared_ptr<Monitor> monitor_;
  std::deque<Entry> entries_;
  bool running_ = false;
  bool ending_ = false;
  Status ended_;
  std::thread thread_;
};

}  // namespace trainyard::runtime::client
