// One operation that a program has given, and how it went.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "base/core/status.h"

namespace trainyard::runtime::client {

// What the works of a group wait by: one lock for all, since each is held for a few instructions.
struct Monitor {
  std::mutex mutex;
  std::condition_variable changed;
};

// Thread-safe. Outlives the group.
class Work {
 public:
  explicit Work(std::shared_ptr<Monitor> monitor) : monitor_(std::move(monitor)) {}
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  bool done() const;
  // Only of a work that is done.
  Status status() const;
  // Once; wakes who waits and calls what notify() was given. With no lock held.
  void finish(Status status);
  // `function` is called once, at once where it is done.
  void notify(std::function<void()> function);

  // The rank a message came from; set before finish().
  void setSource(int rank) { source_ = rank; }
  int source() const { return source_; }

  // For whoever holds the monitor's lock.
  bool doneLocked() const { return status_.has_value(); }
  Monitor& monitor() const { return *monitor_; }

 private:
  const std::shared_ptr<Monitor> monitor_;
  std::optional<Status> status_;
  std::function<void()> notify_;
  int source_ = -1;
};

}  // namespace trainyard::runtime::client
