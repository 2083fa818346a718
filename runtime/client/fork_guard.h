// What a forked child must not do: use a handle of its parent, and keep the parent's connections
// open, by which the other ranks would not learn of the parent's death.
#pragma once

#include <cstdint>
#include <vector>

namespace trainyard::runtime::client {

// Which process this is, counted in forks: another number than when a handle was made means that it
// is the parent's. Async-signal-safe.
std::uint64_t processGeneration();

// Descriptors that a child closes as it begins. Thread-safe.
class ClosedInChildren {
 public:
  ClosedInChildren() = default;
  ~ClosedInChildren();
  ClosedInChildren(const ClosedInChildren&) = delete;
  ClosedInChildren& operator=(const ClosedInChildren&) = delete;
  void add(int fd);
  // Before they are closed: their numbers will be somebody else's.
  void clear();
  // Only of the handler that fork() calls.
  void closeAll();

 private:
  std::vector<int> fds_;
};

}  // namespace trainyard::runtime::client
