// A thread that moves the bytes of many connections: what they are ready for, what others want done
// on it, and a tick now and then.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "base/process/pipe.h"
#include "base/process/unique_fd.h"

namespace trainyard::runtime::lanes {

class EventLoop {
 public:
  // Something with a descriptor.
  class Source {
   public:
    virtual ~Source() = default;
    // The descriptor is readable, writable (where that was asked for) or broken. On the loop.
    virtual void onReady() = 0;
  };

  // `tick` is called about each `period` on the loop. UNAVAILABLE: the process may not have more
  // descriptors.
  static StatusOr<std::unique_ptr<EventLoop>> start(Duration period, std::function<void()> tick);
  // As stop().
  ~EventLoop();
  // Carries out what was posted before, and ends the thread. Any thread but the loop's own.
  void stop();

  // Does it on the loop, in the order of the posts; after stop() never. Any thread; from the loop
  // it wakes nobody, and is done when what is ready has been looked at.
  void post(std::function<void()> task);
  // Whether this is the loop's thread.
  bool here() const { return std::this_thread::get_id() == thread_.get_id(); }

  // The rest on the loop alone, or before anything is posted. `source` is told until remove().
  void add(int fd, Source& source, bool writable);
  void change(int fd, Source& source, bool writable);
  void remove(int fd, const Source& source);

 private:
  EventLoop(Duration period, std::function<void()> tick, WakeUp wake);
  void run();
  bool anyPosted();
  void runPosted();

  UniqueFd poll_;
  const WakeUp wake_;
  const Duration period_;
  const std::function<void()> tick_;
  std::vector<const Source*> removed_;  // since the loop has last asked what is ready
  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace trainyard::runtime::lanes
