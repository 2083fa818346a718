#include "runtime/stream/stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace trainyard::runtime::stream {
namespace {

// What the kernel takes in one call (IOV_MAX).
constexpr std::size_t kMostParts = 1024;
constexpr char kClosed[] = "the connection was closed";

class PlainStream final : public Stream {
 public:
  explicit PlainStream(UniqueFd socket) : socket_(std::move(socket)) {}

  StatusOr<std::size_t> read(std::span<const iovec> into) override {
    msghdr message = messageOf(into);
    const ssize_t n = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT);
    if (n > 0) return static_cast<std::size_t>(n);
    if (n == 0) return closedConnection();
    if (errno == EAGAIN || errno == EINTR) return 0;
    return brokenConnection(errno, "receive");
  }
  StatusOr<std::size_t> write(std::span<const iovec> from) override {
    msghdr message = messageOf(from);
    const ssize_t n = ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    blocked_ = n < 0 && errno == EAGAIN;
    if (n >= 0) return static_cast<std::size_t>(n);
    if (errno == EAGAIN || errno == EINTR) return 0;
    return brokenConnection(errno, "send");
  }
  bool awaitsWritable() const override { return blocked_; }
  int fd() const override { return socket_.get(); }

 private:
  static msghdr messageOf(std::span<const iovec> parts) {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(parts.data());
    message.msg_iovlen = std::min(parts.size(), kMostParts);
    return message;
  }
  const UniqueFd socket_;
  bool blocked_ = false;
};

}  // namespace

bool wasClosed(const Status& status) {
  return absl::IsUnavailable(status) && status.message() == kClosed;
}

Status closedConnection() {
  return absl::UnavailableError(kClosed);
}

Status brokenConnection(int error, const char* call) {
  return absl::UnavailableError(errnoStatus(error, call).message());
}

std::unique_ptr<Stream> plainStream(UniqueFd socket) {
  return std::make_unique<PlainStream>(std::move(socket));
}

std::unique_ptr<Stream> clientStream(const Encryption* encryption, UniqueFd socket) {
  return encryption == nullptr ? plainStream(std::move(socket))
                               : encryption->client(std::move(socket));
}

std::unique_ptr<Stream> serverStream(const Encryption* encryption, UniqueFd socket) {
  return encryption == nullptr ? plainStream(std::move(socket))
                               : encryption->server(std::move(socket));
}

}  // namespace trainyard::runtime::stream
