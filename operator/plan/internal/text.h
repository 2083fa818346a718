// The small text forms that a status holds: sets of indices (operator/cluster) and times.
#pragma once

#include <string>

#include "base/core/clock.h"
#include "base/core/rfc3339.h"  // reads both forms
#include "operator/cluster/task_keys.h"

namespace trainyard::control {

// Of several tasks a message names so many.
inline constexpr int kNamesMax = 5;

// "2026-01-31T13:05:09.250Z"; formatRfc3339() of base/core has no fraction.
std::string formatMillis(UnixMillis at);

}  // namespace trainyard::control
