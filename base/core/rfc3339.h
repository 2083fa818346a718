// Times as text (RFC 3339), by Abseil.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/core/clock.h"

namespace trainyard {

// "2026-01-31T13:05:09Z"; with 3 `digits` of the second's fraction "2026-01-31T13:05:09.250Z".
std::string formatRfc3339(UnixMillis at, int digits = 0);

// With any fraction and any offset, "2026-01-31T15:05:09.25+02:00" too; 0 for what is no time.
UnixMillis parseRfc3339(std::string_view text);
// The same in nanoseconds since 1970; nothing for what is no time.
std::optional<std::int64_t> parseRfc3339Nanos(std::string_view text);

}  // namespace trainyard
