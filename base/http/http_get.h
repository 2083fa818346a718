// A single GET of a page by plain HTTP.
#pragma once

#include <string>

#include "base/core/clock.h"
#include "base/core/status.h"

namespace trainyard {

// The body of http://<address><path>; `address` is "127.0.0.1:8080" or "[::1]:8080". Blocks for at
// most about `timeout`. UNAVAILABLE names the address: nobody answers in time, or with another
// status than 200.
StatusOr<std::string> httpGet(const std::string& address, const std::string& path,
                              Duration timeout);

}  // namespace trainyard
