#include "runtime/client/meeting.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <memory>
#include <optional>
#include <utility>

#include "base/core/strings.h"
#include "base/process/poll.h"
#include "base/process/unique_fd.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "runtime/client/addresses.h"
#include "runtime/transport/handshake.h"
#include "runtime/transport/transport.h"

namespace trainyard::runtime::client {
namespace {

using transport::ReceiverHandshake;
using transport::Self;
using transport::SenderHandshake;
using transport::TcpAddress;

constexpr Duration kHandshakeLimit = std::chrono::seconds(10);
constexpr Duration kReasonLimit = std::chrono::seconds(1);
constexpr Duration kAgain = std::chrono::milliseconds(50);
constexpr std::size_t kPortBytes = 2;
constexpr std::size_t kMostTable = 1 << 20;
// Instead of a table's length: the length of why there is none, with this added.
constexpr std::uint32_t kNoTable = 1U << 31;

Self selfOf(const MeetingOptions& options) {
  return {options.rank, options.size, /*epoch=*/0, options.secret};
}

bool isCancelled(const MeetingOptions& options) {
  return options.cancelled && options.cancelled();
}

std::string hostOf(const sockaddr_storage& address) {
  char text[NI_MAXHOST] = "";
  ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), sizeof(address), text, sizeof(text),
                nullptr, 0, NI_NUMERICHOST);
  const std::string host = text;
  // How a socket for both families shows IPv4.
  return host.starts_with("::ffff:") ? host.substr(7) : host;
}

using Found = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

StatusOr<Found> lookUp(const MeetingOptions& options, int flags) {
  addrinfo hints{};
  hints.ai_flags = flags | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code =
      ::getaddrinfo(options.host.c_str(), std::to_string(options.port).c_str(), &hints, &found);
  if (code == 0) return Found(found, &::freeaddrinfo);
  return absl::UnavailableError(fmt::format("{}: {}", options.host, ::gai_strerror(code)));
}

StatusOr<UniqueFd> listenAt(const MeetingOptions& options) {
  TY_ASSIGN_OR_RETURN(const Found found, lookUp(options, AI_PASSIVE));
  const std::string place = toText({options.host, options.port});
  UniqueFd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (!fd.valid() || ::bind(fd.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0) {
    return absl::UnavailableError(
        fmt::format("rank 0 cannot listen at {}: {}", place, std::strerror(errno)));
  }
  return fd;
}

// False: the connection is gone. Sends what it can.
bool push(int fd, std::string& bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    bytes.erase(0, static_cast<std::size_t>(n));
  }
  return true;
}

// At most `most` bytes more; false: the connection is gone.
bool pull(int fd, std::size_t most, std::string& into) {
  std::string bytes(most, '\0');
  const ssize_t n = ::recv(fd, bytes.data(), most, MSG_DONTWAIT);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  into.append(bytes, 0, static_cast<std::size_t>(n));
  return n > 0;
}

Status missing(const MeetingOptions& options, const std::vector<int>& ranks, int strangers) {
  return transport::withBlamedRank(
      absl::DeadlineExceededError(fmt::format(
          "meeting at {}: after {:.1f} s without rank{} {}{}", toText({options.host, options.port}),
          toSeconds(options.timeout), ranks.size() > 1 ? "s" : "", fmt::join(ranks, ", "),
          strangers > 0 ? "; somebody came and left unproved, as one with another secret does"
                        : "")),
      ranks.front());
}

// What rank 0 says to those who wait: which rank is to blame, whether the ranks do not fit together
// or some are missing, and the text.
std::string reasonOf(const Status& status) {
  return fmt::format("{} {} {}", transport::blamedRank(status).value_or(0),
                     absl::IsFailedPrecondition(status) ? 'p' : 'd', std::string(status.message()));
}
// Never OK.
Status statusOf(std::string_view reason) {
  const auto [blamed, rest] = splitFirst(reason, ' ');
  const auto [kind, text] = splitFirst(rest, ' ');
  const std::string message = fmt::format("rank 0 says: {}", text);
  return transport::withBlamedRank(
      kind == "p" ? absl::FailedPreconditionError(message) : absl::DeadlineExceededError(message),
      parseNumber<int>(blamed).value_or(0));
}

// Rank 0.
class Host {
 public:
  explicit Host(const MeetingOptions& options) : options_(options), self_(selfOf(options)) {
    arrived_.resize(static_cast<std::size_t>(options.size));
    arrived_[0] = Arrived{"", "", options.listens_at};
  }

  StatusOr<std::vector<TcpAddress>> run() {
    TY_ASSIGN_OR_RETURN(listener_, listenAt(options_));
    const TimePoint deadline = systemClock().now() + options_.timeout;
    if (const Status met = meetAll(deadline); !met.ok()) {
      // Those who wait for the table hear why it does not come, instead of waiting on.
      tell(reasonOf(met), kNoTable, systemClock().now() + kReasonLimit);
      return met;
    }
    const std::vector<TcpAddress> addresses = addressesOf(known());
    std::string table;
    for (const TcpAddress& address : addresses) table += toText(address) + "\n";
    // A rank that has gone meanwhile is found out when the group forms.
    tell(table, 0, deadline);
    return addresses;
  }

 private:
  Status meetAll(TimePoint deadline) {
    while (!complete()) {
      if (systemClock().now() >= deadline) return missing(options_, absent(), strangers_);
      if (isCancelled(options_)) return absl::CancelledError("meeting: given up");
      waitForEvents();
      accept();
      for (Guest& guest : guests_) TY_RETURN_IF_ERROR(advance(guest));
      const TimePoint now = systemClock().now();
      guests_.remove_if([&](const Guest& guest) {
        return !guest.fd.valid() || (!guest.port_known && now >= guest.give_up_at);
      });
    }
    return absl::OkStatus();
  }

  struct Guest {
    UniqueFd fd;
    TimePoint give_up_at;
    std::unique_ptr<ReceiverHandshake> handshake;
    std::optional<int> rank;
    bool port_known = false;
    std::string incoming;
    std::string outgoing;
  };

  bool complete() const { return absent().empty(); }
  std::vector<int> absent() const {
    std::vector<int> ranks;
    for (int r = 0; r < options_.size; ++r) {
      if (!arrived_[static_cast<std::size_t>(r)]) ranks.push_back(r);
    }
    return ranks;
  }
  std::vector<Arrived> known() const {
    std::vector<Arrived> all;
    for (const auto& each : arrived_) all.push_back(*each);
    return all;
  }

  void waitForEvents() {
    std::vector<pollfd> fds = {{.fd = listener_.get(), .events = POLLIN, .revents = 0}};
    for (const Guest& guest : guests_) {
      const short wants = guest.outgoing.empty() ? POLLIN : POLLIN | POLLOUT;
      fds.push_back({.fd = guest.fd.get(), .events = wants, .revents = 0});
    }
    pollUntil(fds, systemClock().now() + transport::kCancelCheck);
  }

  void accept() {
    for (;;) {
      UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!fd.valid()) return;
      guests_.push_back({std::move(fd), systemClock().now() + kHandshakeLimit,
                         std::make_unique<ReceiverHandshake>(self_), std::nullopt, false, "", ""});
    }
  }

  // What is still to be read of it. One that has told its port says nothing more: a byte is asked
  // for all the same, because only so its end is noticed.
  static std::size_t needsOf(const Guest& guest) {
    if (guest.port_known) return 1;
    return guest.rank ? kPortBytes - guest.incoming.size() : guest.handshake->needs();
  }

  // A guest that is gone, or a stranger, has no connection afterwards.
  Status advance(Guest& guest) {
    const std::size_t needs = needsOf(guest);
    std::string got;
    if (!push(guest.fd.get(), guest.outgoing) || (needs > 0 && !pull(guest.fd.get(), needs, got))) {
      leave(guest);
      return absl::OkStatus();
    }
    if (got.empty() || guest.port_known) return absl::OkStatus();
    if (guest.rank) {
      guest.incoming += got;
      return guest.incoming.size() == kPortBytes ? take(guest) : absl::OkStatus();
    }
    auto answer = guest.handshake->take(got);
    guest.outgoing += std::exchange(guest.handshake->outgoing(), {});
    push(guest.fd.get(), guest.outgoing);
    if (!answer.ok() && answer.status().code() == absl::StatusCode::kFailedPrecondition) {
      return annotate(answer.status(), "meeting");
    }
    if (!answer.ok()) leave(guest);
    if (answer.ok() && *answer) guest.rank = **answer;
    return absl::OkStatus();
  }

  Status take(Guest& guest) {
    guest.port_known = true;
    auto& place = arrived_[static_cast<std::size_t>(*guest.rank)];
    if (place) {
      return transport::withBlamedRank(
          absl::FailedPreconditionError(
              fmt::format("meeting: two processes say that they are rank {}", *guest.rank)),
          *guest.rank);
    }
    std::uint16_t port = 0;
    std::memcpy(&port, guest.incoming.data(), kPortBytes);
    sockaddr_storage from{}, at{};
    socklen_t from_length = sizeof(from), at_length = sizeof(at);
    ::getpeername(guest.fd.get(), reinterpret_cast<sockaddr*>(&from), &from_length);
    ::getsockname(guest.fd.get(), reinterpret_cast<sockaddr*>(&at), &at_length);
    place = Arrived{hostOf(from), hostOf(at), port};
    return absl::OkStatus();
  }

  // A rank that is gone before all have come may come again.
  void leave(Guest& guest) {
    if (!guest.rank) ++strangers_;
    if (guest.rank && guest.port_known) arrived_[static_cast<std::size_t>(*guest.rank)].reset();
    guest.fd.reset();
  }

  // Everybody who has told its port.
  void tell(std::string text, std::uint32_t mark, TimePoint deadline) {
    const std::uint32_t length = mark | static_cast<std::uint32_t>(text.size());
    text.insert(0, reinterpret_cast<const char*>(&length), sizeof(length));
    for (Guest& guest : guests_) {
      if (guest.port_known) guest.outgoing += text;
    }
    const auto busy = [](const Guest& guest) {
      return guest.fd.valid() && !guest.outgoing.empty();
    };
    while (std::any_of(guests_.begin(), guests_.end(), busy) && systemClock().now() < deadline) {
      for (Guest& guest : guests_) {
        if (busy(guest) && !push(guest.fd.get(), guest.outgoing)) guest.fd.reset();
      }
      if (std::any_of(guests_.begin(), guests_.end(), busy)) waitForEvents();
    }
  }

  const MeetingOptions& options_;
  const Self self_;
  UniqueFd listener_;
  int strangers_ = 0;
  std::list<Guest> guests_;
  std::vector<std::optional<Arrived>> arrived_;
};

// All other ranks.
class Visitor {
 public:
  explicit Visitor(const MeetingOptions& options) : options_(options), self_(selfOf(options)) {}

  StatusOr<std::vector<TcpAddress>> run() {
    deadline_ = systemClock().now() + options_.timeout;
    Status last = absl::UnavailableError("no answer");
    while (systemClock().now() < deadline_) {
      if (isCancelled(options_)) return absl::CancelledError("meeting: given up");
      auto addresses = visit();
      if (!told_.ok()) return told_;
      if (addresses.ok()) return addresses;
      if (isFinal(addresses.status())) return atRankZero(addresses.status());
      last = addresses.status();
      pause();
    }
    return transport::withBlamedRank(
        absl::DeadlineExceededError(fmt::format(
            "meeting: after {:.1f} s without rank 0 at {}: {}", toSeconds(options_.timeout),
            toText({options_.host, options_.port}), std::string(last.message()))),
        0);
  }

 private:
  static bool isFinal(const Status& status) {
    return absl::IsFailedPrecondition(status) || absl::IsPermissionDenied(status) ||
           absl::IsCancelled(status);
  }
  // Whom a refusal is of.
  Status atRankZero(const Status& status) const {
    if (!absl::IsPermissionDenied(status)) return status;
    return transport::withBlamedRank(
        annotate(status,
                 fmt::format("meeting: rank 0 at {}", toText({options_.host, options_.port}))),
        0);
  }
  void pause() { pollUntil({}, std::min(deadline_, systemClock().now() + kAgain)); }

  // Rank 0 may not listen yet, be another program, or be gone before it has told.
  StatusOr<std::vector<TcpAddress>> visit() {
    TY_RETURN_IF_ERROR(connect());
    SenderHandshake handshake(self_, 0);
    for (;;) {
      TY_RETURN_IF_ERROR(say(handshake.outgoing()));
      handshake.outgoing().clear();
      TY_ASSIGN_OR_RETURN(const std::string bytes, hear(handshake.needs()));
      TY_ASSIGN_OR_RETURN(const auto answer, handshake.take(bytes));
      if (answer == SenderHandshake::Answer::kTaken) break;
    }
    std::string port(kPortBytes, '\0');
    std::memcpy(port.data(), &options_.listens_at, kPortBytes);
    TY_RETURN_IF_ERROR(say(port));
    TY_ASSIGN_OR_RETURN(const std::string prefix, hear(sizeof(std::uint32_t)));
    std::uint32_t length = 0;
    std::memcpy(&length, prefix.data(), sizeof(length));
    const bool is_reason = (length & kNoTable) != 0;
    length &= ~kNoTable;
    if (length > kMostTable) return absl::DataLossError("meeting: what came is no list of ranks");
    TY_ASSIGN_OR_RETURN(const std::string table, hear(length));
    if (is_reason) told_ = statusOf(table);
    return is_reason ? told_ : parse(table);
  }

  StatusOr<std::vector<TcpAddress>> parse(std::string_view table) const {
    std::vector<TcpAddress> addresses;
    for (const std::string_view line : split(table, '\n')) {
      if (line.empty()) continue;
      TY_ASSIGN_OR_RETURN(TcpAddress address, parseAddress(line));
      addresses.push_back(std::move(address));
    }
    if (static_cast<int>(addresses.size()) == options_.size) return addresses;
    return absl::DataLossError(
        fmt::format("meeting: {} addresses for {} ranks", addresses.size(), options_.size));
  }

  Status connect() {
    TY_ASSIGN_OR_RETURN(const Found found, lookUp(options_, 0));
    for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
      fd_ = UniqueFd(::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      if (::connect(fd_.get(), each->ai_addr, each->ai_addrlen) == 0) return absl::OkStatus();
      if (errno != EINPROGRESS) continue;
      TY_RETURN_IF_ERROR(waitFor(POLLOUT));
      int error = 0;
      socklen_t length = sizeof(error);
      ::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
      if (error == 0) return absl::OkStatus();
      errno = error;
    }
    return absl::UnavailableError(std::strerror(errno));
  }

  Status waitFor(short events) {
    for (;;) {
      pollfd entry{.fd = fd_.get(), .events = events, .revents = 0};
      const TimePoint until = std::min(deadline_, systemClock().now() + transport::kCancelCheck);
      if (pollUntil({&entry, 1}, until) > 0) return absl::OkStatus();
      if (isCancelled(options_)) return absl::CancelledError("meeting: given up");
      if (systemClock().now() >= deadline_) return absl::UnavailableError("no answer");
    }
  }

  Status say(std::string bytes) {
    while (!bytes.empty()) {
      if (!push(fd_.get(), bytes)) return absl::UnavailableError("the connection was closed");
      if (!bytes.empty()) TY_RETURN_IF_ERROR(waitFor(POLLOUT));
    }
    return absl::OkStatus();
  }

  StatusOr<std::string> hear(std::size_t count) {
    std::string bytes;
    while (bytes.size() < count) {
      TY_RETURN_IF_ERROR(waitFor(POLLIN));
      if (!pull(fd_.get(), count - bytes.size(), bytes)) {
        return absl::UnavailableError("the connection was closed");
      }
    }
    return bytes;
  }

  const MeetingOptions& options_;
  const Self self_;
  Status told_;  // why rank 0 has no table for anybody
  TimePoint deadline_;
  UniqueFd fd_;
};

}  // namespace

StatusOr<std::vector<TcpAddress>> meet(const MeetingOptions& options) {
  if (options.size < 1 || options.size > transport::kMaxRanks || options.rank < 0 ||
      options.rank >= options.size) {
    return absl::InvalidArgumentError(fmt::format("rank {} of {}; at most {} ranks", options.rank,
                                                  options.size, transport::kMaxRanks));
  }
  if (options.rank == 0) return Host(options).run();
  return Visitor(options).run();
}

}  // namespace trainyard::runtime::client
