// Reading times that formatRfc3339() of base/core/clock.h wrote.
#pragma once

#include <string_view>

#include "base/core/clock.h"

namespace trainyard {

// "2026-01-31T13:05:09Z" or "2026-01-31T13:05:09.250Z"; 0 when it is neither.
UnixMillis parseRfc3339(std::string_view text);

}  // namespace trainyard
