#include "runtime/session/channel.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/core/clock.h"
#include "base/process/poll.h"
#include "base/process/retry_interrupted.h"
#include "fmt/format.h"

namespace trainyard::runtime::session {
namespace {

constexpr std::uint32_t kMagic = 0x31535954;  // "TYS1"
constexpr Duration kSlice = std::chrono::milliseconds(50);

struct Header {
  std::uint32_t magic = kMagic;
  std::uint32_t kind = 0;
  std::uint32_t bytes = 0;
};

StatusOr<sockaddr_un> addressOf(const std::string& path) {
  sockaddr_un address{};
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError(
        fmt::format("session: {}: a path of 1 to {} bytes", path, sizeof address.sun_path - 1));
  }
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

UniqueFd makeSocket() {
  return UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

Status awaitReadable(int fd, const Cancelled& cancelled) {
  for (;;) {
    if (waitReadable(fd, systemClock().now() + kSlice)) return absl::OkStatus();
    if (cancelled && cancelled()) return absl::CancelledError("interrupted");
  }
}

Status gone() {
  return absl::UnavailableError("the other end of the session is gone");
}

Status sendAll(int fd, std::string_view bytes, int flags) {
  while (!bytes.empty()) {
    const ssize_t sent = retryInterrupted(
        [&] { return ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | flags); });
    if (sent < 0) return gone();
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<Channel> Channel::connect(const std::string& path) {
  TY_ASSIGN_OR_RETURN(const sockaddr_un address, addressOf(path));
  UniqueFd fd = makeSocket();
  if (!fd.valid()) return errnoStatus(errno, "socket");
  const int connected = retryInterrupted([&] {
    return ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  });
  if (connected != 0)
    return absl::UnavailableError(fmt::format("{}: {}", path, std::strerror(errno)));
  return Channel(std::move(fd));
}

Status Channel::send(Kind kind, std::string_view body) {
  if (body.size() > kMostBodyBytes) {
    return absl::InvalidArgumentError(
        fmt::format("a {} of {} bytes, at most {}", nameOf(kind), body.size(), kMostBodyBytes));
  }
  const Header header{.kind = static_cast<std::uint32_t>(kind),
                      .bytes = static_cast<std::uint32_t>(body.size())};
  const std::string_view head(reinterpret_cast<const char*>(&header), sizeof header);
  TY_RETURN_IF_ERROR(sendAll(fd_.get(), head, body.empty() ? 0 : MSG_MORE));
  return sendAll(fd_.get(), body, 0);
}

Status Channel::read(char* into, std::size_t bytes, const Cancelled& cancelled) {
  while (bytes > 0) {
    TY_RETURN_IF_ERROR(awaitReadable(fd_.get(), cancelled));
    const ssize_t got = retryInterrupted([&] { return ::recv(fd_.get(), into, bytes, 0); });
    if (got <= 0) return gone();
    into += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return absl::OkStatus();
}

StatusOr<Message> Channel::receive(const Cancelled& cancelled) {
  Header header;
  TY_RETURN_IF_ERROR(read(reinterpret_cast<char*>(&header), sizeof header, cancelled));
  if (header.magic != kMagic || header.kind < 1 || header.kind > kLastKind ||
      header.bytes > kMostBodyBytes) {
    return absl::DataLossError("session: not a message of this protocol");
  }
  Message message{.kind = static_cast<Kind>(header.kind), .body = std::string(header.bytes, '\0')};
  // Whoever has begun a message ends it at once.
  TY_RETURN_IF_ERROR(read(message.body.data(), header.bytes, cancelled));
  return message;
}

StatusOr<std::string> Channel::receive(Kind kind, const Cancelled& cancelled) {
  TY_ASSIGN_OR_RETURN(Message message, receive(cancelled));
  if (message.kind == Kind::kFailed && kind != Kind::kFailed) return decodeFailure(message.body);
  if (message.kind == kind) return std::move(message.body);
  return absl::DataLossError(
      fmt::format("session: a {} where a {} should be", nameOf(message.kind), nameOf(kind)));
}

StatusOr<ChannelListener> ChannelListener::open(const std::string& path) {
  TY_ASSIGN_OR_RETURN(const sockaddr_un address, addressOf(path));
  UniqueFd fd = makeSocket();
  if (!fd.valid()) return errnoStatus(errno, "socket");
  ::unlink(path.c_str());
  // From its first moment the file is nobody else's.
  const mode_t before = ::umask(0177);
  const int bound = ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  const int error = errno;
  ::umask(before);
  if (bound != 0) return errnoStatus(error, path);
  ChannelListener listener(std::move(fd), path);
  if (::listen(listener.fd_.get(), 1) != 0) return errnoStatus(errno, path);
  return listener;
}

ChannelListener::ChannelListener(ChannelListener&& other) noexcept
    : fd_(std::move(other.fd_)), path_(std::move(other.path_)) {}

ChannelListener::~ChannelListener() {
  if (fd_.valid()) ::unlink(path_.c_str());
}

StatusOr<Channel> ChannelListener::accept(const Cancelled& cancelled) {
  TY_RETURN_IF_ERROR(awaitReadable(fd_.get(), cancelled));
  UniqueFd fd(
      retryInterrupted([&] { return ::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC); }));
  if (!fd.valid()) return errnoStatus(errno, path_);
  return Channel(std::move(fd));
}

}  // namespace trainyard::runtime::session
