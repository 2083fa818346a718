// "host:port" as programs pass it on; IPv6 in brackets: "[::1]:4000".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/core/status.h"
#include "runtime/transport/tcp_mesh.h"

namespace trainyard::runtime::client {

std::string toText(const transport::TcpAddress& address);
// INVALID_ARGUMENT naming the text.
StatusOr<transport::TcpAddress> parseAddress(std::string_view text);

// What rank 0 of a meeting knows of another rank: where its connection came from, and at which of
// rank 0's own addresses it arrived.
struct Arrived {
  std::string from;
  std::string at;
  std::uint16_t port = 0;  // where it listens
};
// Where each rank is to be found, by rank: those that came from rank 0's own machine have its
// address, by which all know that they share a machine; that is the one at which others have
// reached it, where there are any. `arrived` has rank 0 first, of which only the port is read.
std::vector<transport::TcpAddress> addressesOf(const std::vector<Arrived>& arrived);

}  // namespace trainyard::runtime::client
