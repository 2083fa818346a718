// Takes part in an election, on a thread and a connection of its own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "operator/lease/leader_machine.h"
#include "operator/lease/lease.h"

namespace trainyard::control {

struct LeaderCallbacks {
  std::function<void()> started;                       // we lead
  std::function<void(const std::string& why)> lost;    // no longer; comes once, only after started
  std::function<void(const std::string&)> new_leader;  // somebody else does, by identity
};

// Lifecycle: construct, start(), stop() or the destructor. Callbacks come from the elector's
// thread; they must not call stop(). Nothing comes after `lost`: whoever led and does not any more
// ends the process, since nobody knows what of it is still under way. References outlive it.
class LeaderElector {
 public:
  LeaderElector(LeaderOptions options, LeaseStore& store, const Clock& clock,
                LeaderCallbacks callbacks);
  ~LeaderElector();

  // INVALID_ARGUMENT for wrong options.
  Status start();
  // Gives the lease back if we hold it, so that another one need not wait for it to expire: call it
  // when nothing is written any more.
  void stop();

  // Whether we lead at this moment. Compares the clock with the end of the last renewal, so it is
  // false in time also when the elector's thread, or the whole process, was not running meanwhile.
  // Ask before every write. Thread-safe, cheap.
  bool holds() const;
  // The time from which on holds() is false, unless the lease is renewed; the epoch when it is not
  // held.
  TimePoint holdsUntil() const;
  // How often a leader had to read the lease before it could write it again. Thread-safe.
  std::uint64_t slowPaths() const { return slow_paths_.load(std::memory_order_relaxed); }

 private:
  void loop(const std::stop_token& stop);
  bool step(const std::stop_token& stop);
  void publish();
  void release();

  const LeaderOptions options_;
  LeaseStore& store_;
  const Clock& clock_;
  const LeaderCallbacks callbacks_;
  LeaderMachine machine_;               // the thread's alone
  std::atomic<std::int64_t> until_{0};  // TimePoint of leadsUntil(), as count; 0: not leading
  std::atomic<std::uint64_t> slow_paths_{0};
  bool announced_ = false;
  std::string leader_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;
};

}  // namespace trainyard::control
