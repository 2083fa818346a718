#include "agent/telling/tell_sockets.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "agent/telling/telling.h"
#include "fmt/format.h"

namespace trainyard::agent {
namespace {

// More than a queue holds by default (net.unix.max_dgram_qlen: 10, with systemd 512).
constexpr int kAtOnce = 600;
constexpr const char* kShortFolder = "/tmp";

std::string nameOf(std::uint32_t process, std::uint32_t processes) {
  return processes == 1 ? "tell.sock" : fmt::format("tell-{}.sock", process);
}

// With the zero at its end, which not all programs that connect leave away.
bool fits(const std::filesystem::path& folder, std::uint32_t processes) {
  const std::filesystem::path longest = folder / nameOf(processes - 1, processes);
  return longest.native().size() < sizeof(sockaddr_un::sun_path);
}

StatusOr<std::string> makeFolder(const std::filesystem::path& temporary, std::uint32_t processes) {
  constexpr const char* kName = "trainyard-XXXXXX";
  std::string folder = (temporary / kName).native();
  if (!fits(folder, processes)) folder = (std::filesystem::path(kShortFolder) / kName).native();
  if (::mkdtemp(folder.data()) == nullptr) return errnoStatus(errno, folder);
  return folder;
}

StatusOr<UniqueFd> bindAt(const std::string& path) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return errnoStatus(errno, "socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  ::unlink(path.c_str());  // of an agent that was killed
  // From its first moment the file is nobody else's.
  const mode_t before = ::umask(0177);
  const int bound = ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  const int error = errno;
  ::umask(before);
  if (bound != 0) return errnoStatus(error, path);
  return fd;
}

}  // namespace

StatusOr<TellSockets> TellSockets::open(const std::filesystem::path& folder,
                                        const std::filesystem::path& temporary,
                                        std::uint32_t processes) {
  TellSockets opened;
  std::filesystem::path place = folder;
  if (!fits(folder, processes)) {
    TY_ASSIGN_OR_RETURN(opened.own_folder_, makeFolder(temporary, processes));
    place = opened.own_folder_;
  }
  for (std::uint32_t process = 0; process < processes; ++process) {
    std::string path = (place / nameOf(process, processes)).native();
    TY_ASSIGN_OR_RETURN(UniqueFd fd, bindAt(path));
    opened.sockets_.push_back({std::move(fd), std::move(path)});
  }
  return opened;
}

TellSockets::~TellSockets() {
  for (const Socket& socket : sockets_) {
    if (socket.fd.valid()) ::unlink(socket.path.c_str());
  }
  if (!own_folder_.empty()) ::rmdir(own_folder_.c_str());
}

std::vector<int> TellSockets::fds() const {
  std::vector<int> fds;
  for (const Socket& socket : sockets_) fds.push_back(socket.fd.get());
  return fds;
}

void TellSockets::read(const std::function<void(std::uint32_t, std::string_view)>& take) {
  std::array<char, kMaxTellingBytes + 1> buffer;
  for (std::uint32_t process = 0; process < sockets_.size(); ++process) {
    for (int i = 0; i < kAtOnce; ++i) {
      const ssize_t n = ::recv(sockets_[process].fd.get(), buffer.data(), buffer.size(), 0);
      if (n < 0) break;  // there is no more
      take(process, std::string_view(buffer.data(), static_cast<std::size_t>(n)));
    }
  }
}

void TellSockets::discard() {
  read([](std::uint32_t, std::string_view) {});
}

}  // namespace trainyard::agent
