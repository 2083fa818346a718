#include "runtime/client/addresses.h"

#include <algorithm>

#include "base/core/strings.h"
#include "fmt/format.h"

namespace trainyard::runtime::client {

std::string toText(const transport::TcpAddress& address) {
  const bool is_v6 = address.host.find(':') != std::string::npos;
  return is_v6 ? fmt::format("[{}]:{}", address.host, address.port)
               : fmt::format("{}:{}", address.host, address.port);
}

StatusOr<transport::TcpAddress> parseAddress(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  const auto wrong = [&] {
    return absl::InvalidArgumentError(fmt::format("'{}' is not host:port", text));
  };
  if (colon == std::string_view::npos || colon == 0) return wrong();
  std::string_view host = text.substr(0, colon);
  const auto port = parseNumber<std::uint16_t>(text.substr(colon + 1));
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return wrong();
  }
  if (!port || *port == 0) return wrong();
  return transport::TcpAddress{std::string(host), *port};
}

std::vector<transport::TcpAddress> addressesOf(const std::vector<Arrived>& arrived) {
  const auto is_here = [](const Arrived& rank) { return rank.from == rank.at; };
  const auto far = std::find_if(arrived.begin() + 1, arrived.end(),
                                [&](const Arrived& rank) { return !is_here(rank); });
  std::string own = "127.0.0.1";
  if (far != arrived.end()) {
    own = far->at;
  } else if (arrived.size() > 1) {
    own = arrived[1].at;
  }
  std::vector<transport::TcpAddress> addresses = {{own, arrived[0].port}};
  for (std::size_t r = 1; r < arrived.size(); ++r) {
    addresses.push_back({is_here(arrived[r]) ? own : arrived[r].from, arrived[r].port});
  }
  return addresses;
}

}  // namespace trainyard::runtime::client
