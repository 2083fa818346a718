// Which task's process holds a socket, from /proc.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace trainyard::agent {

// Tasks of one job on this machine. A task's processes are known by the environment that its agent
// gave them (TRAINYARD_JOB, TRAINYARD_ROLE, TRAINYARD_INDEX), which their own children have too.
// Sees the processes that this one may look into: those of the same user. Not thread-safe.
class SocketOwners {
 public:
  explicit SocketOwners(std::string job) : job_(std::move(job)) {}

  // Looks for the sockets that are not known yet, and forgets those that are not in `inodes`. What
  // was not found several times in a row has no owner that can be seen.
  void update(const std::set<std::uint32_t>& inodes);
  // Name of the task ("ps-0"); nothing when not found.
  std::optional<std::string> ownerOf(std::uint32_t inode) const;
  // Whether `inode` may still be found.
  bool searched(std::uint32_t inode) const;

 private:
  struct Entry {
    std::string task;  // "": not found yet
    int tries = 0;
  };
  void scan();
  void scanProcess(const std::string& folder);

  const std::string job_;
  std::map<std::uint32_t, Entry> entries_;
};

}  // namespace trainyard::agent
