// The small text forms that a status holds: sets of indices and times.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "base/core/clock.h"
#include "base/core/rfc3339.h"  // reads both forms

namespace trainyard::control {

// {0,1,2,5} <-> "0-2,5". Parts that do not parse are skipped: the text is our own, and a set that
// is too small only costs a look. At most 65536 indices are read from one text.
std::string formatIndices(const std::set<std::uint32_t>& indices);
std::set<std::uint32_t> parseIndices(std::string_view text);

// "2026-01-31T13:05:09.250Z"; formatRfc3339() of base/core has no fraction.
std::string formatMillis(UnixMillis at);

}  // namespace trainyard::control
