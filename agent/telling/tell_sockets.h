// Where the processes of a user's program tell how they get on: Unix datagram sockets.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/status.h"
#include "base/process/unique_fd.h"

namespace trainyard::agent {

// One socket for each process, so that nobody has to say who he is: who holds a path may write to
// it, which is this user only. Removes them at the end. Not thread-safe. Movable.
class TellSockets {
 public:
  // <folder>/tell.sock, or tell-<process>.sock of several. Where a Unix socket cannot have a path
  // of that length, in a new folder of `temporary`. Errors name the path.
  static StatusOr<TellSockets> open(const std::filesystem::path& folder,
                                    const std::filesystem::path& temporary,
                                    std::uint32_t processes);
  ~TellSockets();
  TellSockets(TellSockets&&) noexcept = default;
  TellSockets& operator=(TellSockets&&) = delete;

  const std::string& path(std::uint32_t process) const { return sockets_[process].path; }
  // To wait for: readable while somebody has told something.
  std::vector<int> fds() const;
  // Hands over the datagrams that have come, at most some hundred of each process, so that one that
  // never stops keeps nobody from his work. Never blocks. Of one that is longer than
  // kMaxTellingBytes as much as shows that it is.
  void read(const std::function<void(std::uint32_t process, std::string_view datagram)>& take);
  // Forgets what has come: it was said by a program that has ended.
  void discard();

 private:
  struct Socket {
    UniqueFd fd;
    std::string path;
  };
  TellSockets() = default;

  std::vector<Socket> sockets_;
  std::string own_folder_;  // to be removed; "": none
};

}  // namespace trainyard::agent
