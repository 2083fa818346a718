#include "agent/traffic/socket_owners.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/core/strings.h"
#include "base/process/files.h"

namespace trainyard::agent {
namespace {

namespace fs = std::filesystem;

// A process may dial before it has set up what it is found by, or be starting another just now.
constexpr int kTries = 10;
constexpr std::size_t kMaxEnvironment = 1 << 20;

// Value of a variable in the text of /proc/PID/environ; "" when it is not there.
std::string_view variable(std::string_view environment, std::string_view name) {
  for (std::size_t at = 0; at < environment.size();) {
    const std::size_t end = std::min(environment.find('\0', at), environment.size());
    const std::string_view entry = environment.substr(at, end - at);
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=') {
      return entry.substr(name.size() + 1);
    }
    at = end + 1;
  }
  return {};
}

// N of "socket:[N]"; 0 for anything else.
std::uint32_t socketInode(std::string_view link) {
  constexpr std::string_view kBefore = "socket:[";
  if (!link.starts_with(kBefore)) return 0;
  std::uint32_t inode = 0;
  std::from_chars(link.data() + kBefore.size(), link.data() + link.size(), inode);
  return inode;
}

}  // namespace

void SocketOwners::update(const std::set<std::uint32_t>& inodes) {
  std::erase_if(entries_, [&](const auto& entry) { return !inodes.contains(entry.first); });
  for (const std::uint32_t inode : inodes) entries_.try_emplace(inode);
  const bool open = std::any_of(entries_.begin(), entries_.end(),
                                [this](const auto& entry) { return searched(entry.first); });
  if (!open) return;
  for (auto& [inode, entry] : entries_) ++entry.tries;
  scan();
}

void SocketOwners::scan() {
  std::error_code error;
  for (fs::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename();
    if (name.find_first_not_of("0123456789") == std::string::npos) scanProcess(it->path());
  }
}

void SocketOwners::scanProcess(const std::string& folder) {
  const StatusOr<std::string> environment = readFile(folder + "/environ", kMaxEnvironment);
  if (!environment.ok() || variable(*environment, "TRAINYARD_JOB") != job_) return;
  const std::string role(variable(*environment, "TRAINYARD_ROLE"));
  const std::string index(variable(*environment, "TRAINYARD_INDEX"));
  if (role.empty() || index.empty()) return;
  std::error_code error;
  for (fs::directory_iterator it(folder + "/fd", error), end; !error && it != end;
       it.increment(error)) {
    std::error_code gone;
    const auto found = entries_.find(socketInode(fs::read_symlink(it->path(), gone).native()));
    if (!gone && found != entries_.end()) found->second.task = role + "-" + index;
  }
}

std::optional<std::string> SocketOwners::ownerOf(std::uint32_t inode) const {
  const auto found = entries_.find(inode);
  if (found == entries_.end() || found->second.task.empty()) return std::nullopt;
  return found->second.task;
}

bool SocketOwners::searched(std::uint32_t inode) const {
  const auto found = entries_.find(inode);
  return found != entries_.end() && found->second.task.empty() && found->second.tries < kTries;
}

}  // namespace trainyard::agent
