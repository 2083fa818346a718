// A connection that a proxy makes for us.
#pragma once

#include <optional>
#include <string>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "base/http/proxy.h"

namespace trainyard::runtime::s3 {

// Asks the proxy at the other end of `fd`, which blocks, to connect it with `target` ("host:port";
// RFC 9110, section 9.3.6, CONNECT). After OK the next byte that comes is the target's.
// PERMISSION_DENIED: it wants to know who asks, or does not let us; UNAVAILABLE: it answers
// something else, or not by the deadline.
Status openTunnel(int fd, const ProxyAddress& proxy, const std::string& target, TimePoint deadline);

}  // namespace trainyard::runtime::s3
