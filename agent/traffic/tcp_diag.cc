#include "agent/traffic/tcp_diag.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/process/poll.h"
#include "fmt/format.h"

namespace trainyard::agent {
namespace {

constexpr int kFamilies[] = {AF_INET, AF_INET6};
constexpr std::uint32_t kListening = 1U << 10;  // bit of TCP_LISTEN
constexpr std::size_t kBuffer = 64 << 10;       // a netlink dump fills at most 32 KiB at once

struct Request {
  nlmsghdr header;
  inet_diag_req_v2 body;
};

StatusOr<UniqueFd> openSocket() {
  UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  // Bound, or the kernel's broadcasts pass it by: both would have the address 0.
  sockaddr_nl any = {};
  any.nl_family = AF_NETLINK;
  if (!fd.valid() || ::bind(fd.get(), reinterpret_cast<sockaddr*>(&any), sizeof any) != 0) {
    return absl::UnavailableError(fmt::format("sock_diag: {}", strerror(errno)));
  }
  return fd;
}

bool join(const UniqueFd& fd, int group) {
  return ::setsockopt(fd.get(), SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group) == 0;
}

TcpEnd endOf(int family, const __be32* ip, __be16 port) {
  TcpEnd end{.port = ntohs(port)};
  if (family == AF_INET6) {
    std::memcpy(end.ip.data(), ip, end.ip.size());
  } else {
    end.ip[10] = end.ip[11] = 0xff;
    std::memcpy(end.ip.data() + 12, ip, 4);
  }
  return end;
}

// The counters of one message; nothing when it is of another port or has none (TIME_WAIT).
std::optional<TcpConnection> parse(const nlmsghdr& header, int port) {
  inet_diag_msg message;
  if (header.nlmsg_len < NLMSG_LENGTH(sizeof message)) return std::nullopt;
  const char* at = reinterpret_cast<const char*>(&header) + NLMSG_HDRLEN;
  std::memcpy(&message, at, sizeof message);
  if (port != 0 && ntohs(message.id.idiag_sport) != port) return std::nullopt;
  std::size_t left = header.nlmsg_len - NLMSG_LENGTH(sizeof message);
  at += NLMSG_ALIGN(sizeof message);
  rtattr attribute;
  while (left >= sizeof attribute) {
    std::memcpy(&attribute, at, sizeof attribute);
    if (attribute.rta_len < sizeof attribute || attribute.rta_len > left) return std::nullopt;
    if (attribute.rta_type == INET_DIAG_INFO) {
      tcp_info info = {};  // a kernel may know fewer or more fields
      std::memcpy(&info, at + sizeof attribute,
                  std::min(sizeof info, attribute.rta_len - sizeof attribute));
      const std::uint64_t cookie =
          message.id.idiag_cookie[0] | std::uint64_t{message.id.idiag_cookie[1]} << 32;
      return TcpConnection{
          .cookie = cookie,
          .received = info.tcpi_bytes_received,
          .transmitted = info.tcpi_bytes_acked,
          .local = endOf(message.idiag_family, message.id.idiag_src, message.id.idiag_sport),
          .remote = endOf(message.idiag_family, message.id.idiag_dst, message.id.idiag_dport),
          .inode = message.idiag_inode};
    }
    const std::size_t step = std::min<std::size_t>(RTA_ALIGN(attribute.rta_len), left);
    at += step;
    left -= step;
  }
  return std::nullopt;
}

// Whether a dump goes on after these messages; an error is the kernel's answer.
StatusOr<bool> takeMessages(const char* data, std::size_t size, int port,
                            std::vector<TcpConnection>& out) {
  nlmsghdr header;
  while (size >= sizeof header) {
    std::memcpy(&header, data, sizeof header);
    if (header.nlmsg_len < sizeof header || header.nlmsg_len > size) break;
    if (header.nlmsg_type == NLMSG_DONE) return false;
    if (header.nlmsg_type == NLMSG_ERROR) {
      nlmsgerr error = {};
      std::memcpy(&error, data + NLMSG_HDRLEN,
                  std::min(sizeof error, header.nlmsg_len - sizeof header));
      return absl::UnavailableError(fmt::format("sock_diag: {}", strerror(-error.error)));
    }
    if (auto bytes = parse(*reinterpret_cast<const nlmsghdr*>(data), port)) out.push_back(*bytes);
    const std::size_t step = std::min<std::size_t>(NLMSG_ALIGN(header.nlmsg_len), size);
    data += step;
    size -= step;
  }
  return true;
}

// The cookie of a socket that has ended since; 0: there was none to be had.
std::uint64_t endOne() {
  const UniqueFd mark(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  std::uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  return ::getsockopt(mark.get(), SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

struct alignas(nlmsghdr) Buffer {
  std::array<char, kBuffer> bytes;
};

}  // namespace

StatusOr<TcpEnd> tcpEnd(const std::string& ip, int port) {
  in_addr v4;
  in6_addr v6;
  if (::inet_pton(AF_INET, ip.c_str(), &v4) == 1) {
    return endOf(AF_INET, &v4.s_addr, htons(static_cast<std::uint16_t>(port)));
  }
  if (::inet_pton(AF_INET6, ip.c_str(), &v6) == 1) {
    return endOf(AF_INET6, v6.s6_addr32, htons(static_cast<std::uint16_t>(port)));
  }
  return absl::InvalidArgumentError(fmt::format("'{}' is no address", ip));
}

StatusOr<TcpDiag> TcpDiag::open(int told_bytes) {
  TY_ASSIGN_OR_RETURN(UniqueFd requests, openSocket());
  TY_ASSIGN_OR_RETURN(UniqueFd events, openSocket());
  // Ends of connections are told since Linux 4.2.
  if (!join(events, SKNLGRP_INET_TCP_DESTROY) || !join(events, SKNLGRP_INET6_TCP_DESTROY)) {
    events.reset();
  } else if (::setsockopt(events.get(), SOL_SOCKET, SO_RCVBUFFORCE, &told_bytes,
                          sizeof told_bytes)) {
    // Without the right to more, as much as everybody may have.
    (void)::setsockopt(events.get(), SOL_SOCKET, SO_RCVBUF, &told_bytes, sizeof told_bytes);
  }
  TcpDiag diag(std::move(requests), std::move(events));
  TY_RETURN_IF_ERROR(diag.list(1).status());  // a port that is of no interest: only asks
  return diag;
}

StatusOr<std::vector<TcpConnection>> TcpDiag::list(int port) {
  std::vector<TcpConnection> found;
  Buffer buffer;
  for (const int family : kFamilies) {
    Request request = {};
    request.header.nlmsg_len = sizeof request;
    request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    request.body.sdiag_family = static_cast<std::uint8_t>(family);
    request.body.sdiag_protocol = IPPROTO_TCP;
    request.body.idiag_ext = 1U << (INET_DIAG_INFO - 1);
    request.body.idiag_states = ~kListening;
    request.body.id.idiag_sport = htons(static_cast<std::uint16_t>(port));
    if (::send(requests_.get(), &request, sizeof request, 0) < 0) {
      return absl::UnavailableError(fmt::format("sock_diag: {}", strerror(errno)));
    }
    for (bool more = true; more;) {
      const ssize_t n = ::recv(requests_.get(), buffer.bytes.data(), buffer.bytes.size(), 0);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return absl::UnavailableError(fmt::format("sock_diag: {}", strerror(errno)));
      TY_ASSIGN_OR_RETURN(
          more, takeMessages(buffer.bytes.data(), static_cast<std::size_t>(n), port, found));
    }
  }
  return found;
}

std::vector<TcpConnection> TcpDiag::takeEvents() {
  std::vector<TcpConnection> ended;
  Buffer buffer;
  while (events_.valid()) {
    const ssize_t n = ::recv(events_.get(), buffer.bytes.data(), buffer.bytes.size(), MSG_DONTWAIT);
    // ENOBUFS: some were lost, others follow.
    if (n < 0 && errno == ENOBUFS) ++losses_;
    if (n < 0 && (errno == EINTR || errno == ENOBUFS)) continue;
    if (n <= 0) break;
    (void)takeMessages(buffer.bytes.data(), static_cast<std::size_t>(n), /*port=*/0, ended);
  }
  return ended;
}

std::vector<TcpConnection> TcpDiag::takeEnded(int port) {
  std::vector<TcpConnection> ended = std::exchange(told_, {});
  for (const TcpConnection& one : takeEvents()) ended.push_back(one);
  if (port != 0) std::erase_if(ended, [port](const auto& one) { return one.local.port != port; });
  return ended;
}

bool TcpDiag::waitForEnded(TimePoint deadline) const {
  if (!told_.empty()) return true;
  return events_.valid() && waitReadable(events_.get(), deadline);
}

void TcpDiag::waitForEndsOfBefore(TimePoint deadline) {
  std::uint64_t mark = endOne();
  int losses = losses_;
  while (mark != 0 && events_.valid() && waitReadable(events_.get(), deadline)) {
    for (const TcpConnection& one : takeEvents()) {
      if (one.cookie == mark) mark = 0;
      told_.push_back(one);
    }
    // The mark may have been among what was lost; there is room again now.
    if (mark != 0 && losses_ != losses) {
      mark = endOne();
      losses = losses_;
    }
  }
}

}  // namespace trainyard::agent
