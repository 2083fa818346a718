#include "agent/supervisor/port_holder.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/core/strings.h"
#include "base/process/files.h"
#include "fmt/format.h"

namespace trainyard::agent {
namespace {

constexpr int kLowestPort = 10'240;
constexpr int kHighestPort = 65'535;
constexpr int kTries = 200;

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

StatusOr<Address> makeAddress(const std::string& text, int port) {
  Address address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  if (::inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<std::uint16_t>(port));
    address.size = sizeof *v4;
    return address;
  }
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (::inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(static_cast<std::uint16_t>(port));
    address.size = sizeof *v6;
    return address;
  }
  return absl::InvalidArgumentError(fmt::format("bind: '{}' is not an IP address", text));
}

// Without `reuse` nobody else can bind the port, but connections of a former owner that are still
// closing (TIME_WAIT) stand in the way; with it they do not, but another that sets it gets in too.
StatusOr<UniqueFd> bindTo(const std::string& text, int port, bool reuse) {
  TY_ASSIGN_OR_RETURN(const Address address, makeAddress(text, port));
  UniqueFd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return errnoStatus(errno, "socket");
  const int value = reuse ? 1 : 0;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &value, sizeof value);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.size) == 0) {
    return fd;
  }
  const int error = errno;
  return absl::UnavailableError(
      fmt::format("task port: cannot bind {}:{}: {}", text, port, ::strerror(error)));
}

StatusOr<UniqueFd> bindGiven(const std::string& text, int port) {
  StatusOr<UniqueFd> alone = bindTo(text, port, /*reuse=*/false);
  return alone.ok() || !absl::IsUnavailable(alone.status()) ? std::move(alone)
                                                            : bindTo(text, port, /*reuse=*/true);
}

struct Range {
  int first;
  int last;
};

// The larger part of what lies outside the kernel's own range.
Range candidates() {
  const StatusOr<std::string> text = readFile("/proc/sys/net/ipv4/ip_local_port_range", 256);
  int low = 32'768;  // the kernel's default
  int high = 60'999;
  if (text.ok()) {
    const auto [first, second] = splitFirst(trim(*text), '\t');
    low = parseNumber<int>(trim(first)).value_or(low);
    high = parseNumber<int>(trim(second)).value_or(high);
  }
  const Range below{kLowestPort, low - 1};
  const Range above{high + 1, kHighestPort};
  const Range larger = below.last - below.first >= above.last - above.first ? below : above;
  // A machine that leaves nothing outside gets a port from anywhere.
  return larger.last - larger.first >= kTries ? larger : Range{kLowestPort, kHighestPort};
}

// The port after a given one, where nobody has it: who else would be found there is the program's
// affair, which may not need it.
UniqueFd tryBeside(const std::string& text, int port) {
  if (port >= kHighestPort) return UniqueFd();
  StatusOr<UniqueFd> beside = bindGiven(text, port + 1);
  return beside.ok() ? std::move(*beside) : UniqueFd();
}

}  // namespace

StatusOr<PortHolder> PortHolder::hold(const std::string& address, int port, Rng& rng,
                                      bool neighbour) {
  if (port != 0) {
    TY_ASSIGN_OR_RETURN(UniqueFd socket, bindGiven(address, port));
    UniqueFd beside = neighbour ? tryBeside(address, port) : UniqueFd();
    return PortHolder(address, port, neighbour, std::move(socket), std::move(beside));
  }
  const Range range = candidates();
  const auto count = static_cast<std::uint64_t>(range.last - range.first + (neighbour ? 0 : 1));
  Status last;
  for (int i = 0; i < kTries; ++i) {
    const int candidate = range.first + static_cast<int>(rng.below(count));
    StatusOr<UniqueFd> socket = bindTo(address, candidate, /*reuse=*/false);
    StatusOr<UniqueFd> beside = UniqueFd();
    if (socket.ok() && neighbour) beside = bindTo(address, candidate + 1, /*reuse=*/false);
    if (socket.ok() && beside.ok()) {
      return PortHolder(address, candidate, neighbour, std::move(*socket), std::move(*beside));
    }
    last = socket.ok() ? beside.status() : socket.status();
    if (!absl::IsUnavailable(last)) return last;
  }
  return annotate(last, fmt::format("no free port after {} tries", kTries));
}

Status PortHolder::holdAgain() {
  if (neighbour_ && !beside_.valid()) beside_ = tryBeside(address_, port_);
  if (socket_.valid()) return absl::OkStatus();
  TY_ASSIGN_OR_RETURN(socket_, bindGiven(address_, port_));
  return absl::OkStatus();
}

}  // namespace trainyard::agent
