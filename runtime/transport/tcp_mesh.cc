#include "runtime/transport/tcp_mesh.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <memory>
#include <utility>

#include "base/core/log.h"
#include "base/core/strings.h"
#include "base/process/poll.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "runtime/transport/handshake.h"
#include "runtime/transport/transport.h"

namespace trainyard::runtime::transport {
namespace {

constexpr Duration kFirstBackoff = std::chrono::milliseconds(10);
constexpr Duration kMaxBackoff = std::chrono::milliseconds(500);
// Of a connection that has not proved itself.
constexpr Duration kHandshakeLimit = std::chrono::seconds(10);

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

StatusOr<SocketAddress> parse(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    return absl::InvalidArgumentError(fmt::format("'{}' is not a numeric address", host));
  }
  SocketAddress address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  ::freeaddrinfo(found);
  return address;
}

void setNoDelay(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

// Sends what it can of `bytes` and removes it. UNAVAILABLE when the connection is gone.
Status sendSome(stream::Stream& to, std::string& bytes) {
  while (!bytes.empty()) {
    const iovec part{bytes.data(), bytes.size()};
    TY_ASSIGN_OR_RETURN(const std::size_t sent, to.write({&part, 1}));
    if (sent == 0) break;
    bytes.erase(0, sent);
  }
  return absl::OkStatus();
}

// At most `most` bytes; "" when there are none yet. UNAVAILABLE when the connection is gone.
StatusOr<std::string> receiveSome(stream::Stream& from, std::size_t most) {
  std::string bytes(most, '\0');
  const iovec part{bytes.data(), bytes.size()};
  TY_ASSIGN_OR_RETURN(const std::size_t got, from.read({&part, 1}));
  bytes.resize(got);
  return bytes;
}

// Beginning to encrypt may need either direction for both.
pollfd awaiting(const stream::Stream& connection) {
  const auto events = static_cast<short>(connection.awaitsWritable() ? POLLOUT : POLLIN);
  return {.fd = connection.fd(), .events = events, .revents = 0};
}

// A connection to one peer in the making; starts again after a failure that may pass.
struct Outbound {
  int peer = 0;
  SocketAddress address;
  UniqueFd connecting;                     // until it is connected
  std::unique_ptr<stream::Stream> stream;  // then
  bool done = false;
  TimePoint retry_at{};
  Duration backoff = kFirstBackoff;
  std::unique_ptr<SenderHandshake> handshake;
  std::string said;     // by whoever answered last, of why it is not done yet
  std::string trouble;  // of the connection, since then

  // A peer that has spoken and gone is told of by what it said: a lost connection says less.
  std::string reason() const {
    if (said.empty()) return trouble.empty() ? "no answer" : trouble;
    return trouble.empty() ? said : fmt::format("{}; then {}", said, trouble);
  }
};
struct Inbound {
  std::unique_ptr<stream::Stream> stream;
  TimePoint give_up_at;
  std::unique_ptr<ReceiverHandshake> handshake;
  std::optional<int> peer;  // taken; the verdict may still have to leave
};

class MeshBuilder {
 public:
  MeshBuilder(const TcpListener& listener, const MeshOptions& options)
      : listener_(listener), options_(options) {
    self_ = {options.rank, static_cast<int>(options.addresses.size()), options.epoch,
             options.token};
    mesh_.rank = options.rank;
    mesh_.epoch = options.epoch;
    mesh_.pairs.resize(options.addresses.size());
  }

  StatusOr<TcpMesh> build() {
    TY_RETURN_IF_ERROR(prepare());
    const TimePoint deadline = systemClock().now() + options_.timeout;
    while (!complete()) {
      const TimePoint now = systemClock().now();
      if (now >= deadline) return missing();
      if (options_.cancelled && options_.cancelled()) {
        return absl::CancelledError(
            fmt::format("forming the group of epoch {}: given up", self_.epoch));
      }
      for (Outbound& out : outbound_) TY_RETURN_IF_ERROR(advance(out, now));
      TY_RETURN_IF_ERROR(advanceInbound(now));
      const TimePoint until =
          options_.cancelled ? std::min(deadline, now + kCancelCheck) : deadline;
      if (!complete()) waitForEvents(until);
    }
    return std::move(mesh_);
  }

 private:
  Status prepare() {
    if (self_.size < 1 || self_.size > kMaxRanks || self_.rank < 0 || self_.rank >= self_.size) {
      return absl::InvalidArgumentError(
          fmt::format("rank {} of {}; at most {} ranks", self_.rank, self_.size, kMaxRanks));
    }
    for (int peer = 0; peer < self_.size; ++peer) {
      if (peer == self_.rank) continue;
      const TcpAddress& address = options_.addresses[static_cast<std::size_t>(peer)];
      Outbound out;
      out.peer = peer;
      auto parsed = parse(address.host, address.port);
      if (!parsed.ok()) return annotate(parsed.status(), fmt::format("rank {}", peer));
      out.address = *parsed;
      outbound_.push_back(std::move(out));
    }
    return absl::OkStatus();
  }

  bool complete() const {
    return std::all_of(outbound_.begin(), outbound_.end(), [&](const Outbound& out) {
      return out.done && mesh_.pairs[static_cast<std::size_t>(out.peer)].in != nullptr;
    });
  }

  Status missing() const {
    std::vector<std::string> lines;
    int first = -1;
    for (const Outbound& out : outbound_) {
      const bool heard = mesh_.pairs[static_cast<std::size_t>(out.peer)].in != nullptr;
      if (out.done && heard) continue;
      if (first < 0) first = out.peer;
      const TcpAddress& address = options_.addresses[static_cast<std::size_t>(out.peer)];
      lines.push_back(fmt::format("rank {} ({}:{}: {})", out.peer, address.host, address.port,
                                  out.done ? "does not connect back" : out.reason()));
    }
    return withBlamedRank(absl::DeadlineExceededError(fmt::format(
                              "forming the group of epoch {}: after {:.1f} s "
                              "without {}",
                              self_.epoch, toSeconds(options_.timeout), fmt::join(lines, ", "))),
                          first);
  }

  void heardOf(Outbound& out, std::string said, TimePoint now) {
    out.said = std::move(said);
    again(out, "", now);
  }

  void again(Outbound& out, std::string trouble, TimePoint now) {
    out.trouble = std::move(trouble);
    out.connecting.reset();
    out.stream.reset();
    out.retry_at = now + out.backoff;
    out.backoff = std::min(2 * out.backoff, kMaxBackoff);
  }

  void connect(Outbound& out, TimePoint now) {
    UniqueFd fd(
        ::socket(out.address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd.valid()) return again(out, std::strerror(errno), now);
    setNoDelay(fd.get());
    out.handshake = std::make_unique<SenderHandshake>(self_, out.peer);
    const auto* address = reinterpret_cast<const sockaddr*>(&out.address.storage);
    if (::connect(fd.get(), address, out.address.length) != 0 && errno != EINPROGRESS) {
      return again(out, std::strerror(errno), now);
    }
    out.connecting = std::move(fd);
  }

  Status advance(Outbound& out, TimePoint now) {
    if (out.done) return absl::OkStatus();
    if (out.stream == nullptr) {
      if (!out.connecting.valid() && now >= out.retry_at) connect(out, now);
      if (!out.connecting.valid() || !finishConnect(out, now)) return absl::OkStatus();
    }
    for (;;) {
      if (Status sent = sendSome(*out.stream, out.handshake->outgoing()); !sent.ok()) {
        again(out, std::string(sent.message()), now);
        return absl::OkStatus();
      }
      if (!out.handshake->outgoing().empty()) return absl::OkStatus();
      auto bytes = receiveSome(*out.stream, out.handshake->needs());
      if (!bytes.ok()) {
        again(out, std::string(bytes.status().message()), now);
        return absl::OkStatus();
      }
      if (bytes->empty()) return absl::OkStatus();
      TY_RETURN_IF_ERROR(heard(out, *bytes, now));
      if (out.done || out.stream == nullptr) return absl::OkStatus();
    }
  }

  Status heard(Outbound& out, const std::string& bytes, TimePoint now) {
    auto answer = out.handshake->take(bytes);
    if (!answer.ok()) {
      // Whoever holds the address now may be a stranger who gives it up again; but a member of the
      // job that refuses, or speaks another version, will go on doing so.
      if (answer.status().code() != absl::StatusCode::kFailedPrecondition) {
        heardOf(out, std::string(answer.status().message()), now);
        return absl::OkStatus();
      }
      return withBlamedRank(annotate(answer.status(), fmt::format("rank {}", out.peer)), out.peer);
    }
    if (*answer == SenderHandshake::Answer::kNotYet) {
      heardOf(out, fmt::format("is still in epoch {}", out.handshake->peerEpoch()), now);
    } else if (*answer == SenderHandshake::Answer::kTaken) {
      out.done = true;
      mesh_.pairs[static_cast<std::size_t>(out.peer)].out = std::move(out.stream);
    }
    return absl::OkStatus();
  }

  bool finishConnect(Outbound& out, TimePoint now) {
    pollfd entry{.fd = out.connecting.get(), .events = POLLOUT, .revents = 0};
    if (::poll(&entry, 1, 0) <= 0) return false;
    int error = 0;
    socklen_t length = sizeof(error);
    ::getsockopt(out.connecting.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) {
      again(out, std::strerror(error), now);
      return false;
    }
    out.stream = stream::clientStream(options_.encryption.get(), std::move(out.connecting));
    return true;
  }

  Status advanceInbound(TimePoint now) {
    accept(now);
    for (auto at = inbound_.begin(); at != inbound_.end();) {
      TY_ASSIGN_OR_RETURN(const bool keep, advance(*at, now));
      at = keep ? std::next(at) : inbound_.erase(at);
    }
    return absl::OkStatus();
  }

  void accept(TimePoint now) {
    const std::size_t most = 4 * mesh_.pairs.size() + 16;
    for (;;) {
      UniqueFd fd(::accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!fd.valid()) return;
      setNoDelay(fd.get());
      if (inbound_.size() >= most) inbound_.pop_front();  // the one that has dawdled longest
      inbound_.push_back({stream::serverStream(options_.encryption.get(), std::move(fd)),
                          now + kHandshakeLimit, std::make_unique<ReceiverHandshake>(self_),
                          std::nullopt});
    }
  }

  // Whether to go on with it.
  StatusOr<bool> advance(Inbound& in, TimePoint now) {
    if (now >= in.give_up_at) return false;
    while (!in.handshake->finished()) {
      if (!sendSome(*in.stream, in.handshake->outgoing()).ok()) return false;
      if (!in.handshake->outgoing().empty()) return true;
      auto bytes = receiveSome(*in.stream, in.handshake->needs());
      if (!bytes.ok()) return false;
      if (bytes->empty()) return true;
      auto taken = in.handshake->take(*bytes);
      if (!taken.ok()) {
        (void)sendSome(*in.stream, in.handshake->outgoing());
        const bool ours = in.handshake->finished();
        if (ours) return taken.status();
        if (absl::IsUnimplemented(taken.status())) tellOfVersion(taken.status());
        return false;
      }
      if (*taken) in.peer = *taken;
    }
    if (!sendSome(*in.stream, in.handshake->outgoing()).ok()) return false;
    if (!in.handshake->outgoing().empty()) return true;
    // A rank that connects again was started again: the newer connection counts.
    if (in.peer) mesh_.pairs[static_cast<std::size_t>(*in.peer)].in = std::move(in.stream);
    return false;
  }

  // Once: a stranger may come again and again.
  void tellOfVersion(const Status& status) {
    if (std::exchange(told_of_version_, true)) return;
    TY_WARN("forming the group of epoch {}: whoever connects here without a proof {}; not taken",
            self_.epoch, fromAbsl(status.message()));
  }

  void waitForEvents(TimePoint deadline) {
    std::vector<pollfd> fds;
    fds.push_back({.fd = listener_.fd(), .events = POLLIN, .revents = 0});
    TimePoint until = deadline;
    for (const Outbound& out : outbound_) {
      if (out.done) continue;
      if (out.stream != nullptr) {
        fds.push_back(awaiting(*out.stream));
      } else if (out.connecting.valid()) {
        fds.push_back({.fd = out.connecting.get(), .events = POLLOUT, .revents = 0});
      } else {
        until = std::min(until, out.retry_at);
      }
    }
    for (const Inbound& in : inbound_) {
      fds.push_back(awaiting(*in.stream));
      until = std::min(until, in.give_up_at);
    }
    pollUntil(fds, until);
  }

  const TcpListener& listener_;
  const MeshOptions& options_;
  Self self_;
  TcpMesh mesh_;
  std::vector<Outbound> outbound_;
  std::list<Inbound> inbound_;
  bool told_of_version_ = false;
};

}  // namespace

StatusOr<TcpListener> TcpListener::listen(const std::string& address, std::uint16_t port) {
  const std::string place = fmt::format("listen at {}:{}", address, port);
  TY_ASSIGN_OR_RETURN(const SocketAddress at, parse(address, port));
  UniqueFd fd(::socket(at.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return errnoStatus(errno, place);
  // A port that was just in use may be taken again; not one that is in use.
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&at.storage), at.length) != 0 ||
      ::listen(fd.get(), kMaxRanks) != 0) {
    return errnoStatus(errno, place);
  }
  SocketAddress bound;
  bound.length = sizeof(bound.storage);
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound.storage), &bound.length) != 0) {
    return errnoStatus(errno, place);
  }
  const auto network = bound.storage.ss_family == AF_INET6
                           ? reinterpret_cast<const sockaddr_in6&>(bound.storage).sin6_port
                           : reinterpret_cast<const sockaddr_in&>(bound.storage).sin_port;
  return TcpListener(std::move(fd), ntohs(network));
}

StatusOr<TcpMesh> connectMesh(const TcpListener& listener, const MeshOptions& options) {
  return MeshBuilder(listener, options).build();
}

}  // namespace trainyard::runtime::transport
