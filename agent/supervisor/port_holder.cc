#include "agent/supervisor/port_holder.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
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

// A name that one socket of the network namespace can have, like the port itself; nothing else is
// done with it.
StatusOr<UniqueFd> claim(const std::string& address, int port) {
  const std::string name = fmt::format("trainyard-port/{}/{}", address, port);
  sockaddr_un place{};
  place.sun_family = AF_UNIX;
  name.copy(place.sun_path + 1, sizeof place.sun_path - 1);  // abstract: after a zero
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return errnoStatus(errno, "socket");
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&place), size) == 0) return fd;
  return absl::UnavailableError(fmt::format("task port: {}:{} is another task's", address, port));
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
    Held held;
    TY_ASSIGN_OR_RETURN(held.socket, bindGiven(address, port));
    if (neighbour) held.beside = tryBeside(address, port);
    return PortHolder(address, port, neighbour, std::move(held));
  }
  const Range range = candidates();
  const auto count = static_cast<std::uint64_t>(range.last - range.first + (neighbour ? 0 : 1));
  Status last;
  for (int i = 0; i < kTries; ++i) {
    const int candidate = range.first + static_cast<int>(rng.below(count));
    StatusOr<Held> held = choose(address, candidate, neighbour);
    if (held.ok()) return PortHolder(address, candidate, neighbour, *std::move(held));
    last = held.status();
    if (!absl::IsUnavailable(last)) return last;
  }
  return annotate(last, fmt::format("no free port after {} tries", kTries));
}

StatusOr<PortHolder::Held> PortHolder::choose(const std::string& address, int port,
                                              bool neighbour) {
  Held held;
  TY_ASSIGN_OR_RETURN(held.socket, bindTo(address, port, /*reuse=*/false));
  if (neighbour) {
    TY_ASSIGN_OR_RETURN(held.beside, bindTo(address, port + 1, /*reuse=*/false));
  }
  for (int each = port; each <= port + (neighbour ? 1 : 0); ++each) {
    TY_ASSIGN_OR_RETURN(UniqueFd name, claim(address, each));
    held.chosen.push_back(std::move(name));
  }
  return held;
}

Status PortHolder::holdAgain() {
  if (neighbour_ && !held_.beside.valid()) held_.beside = tryBeside(address_, port_);
  if (held_.socket.valid()) return absl::OkStatus();
  TY_ASSIGN_OR_RETURN(held_.socket, bindGiven(address_, port_));
  return absl::OkStatus();
}

}  // namespace trainyard::agent
