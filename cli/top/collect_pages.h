// Asking many agents at once.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/core/status.h"
#include "cli/top/metrics_text.h"

namespace trainyard::cli {

// What `fetch` gives for each key, several at a time, on threads that end with the call. Keys
// without an answer are missing in the result; where there is none at all, the first failure.
// `fetch` is called from any thread.
StatusOr<TaskPages> collectPages(
    const std::vector<control::TaskKey>& keys,
    const std::function<StatusOr<std::string>(const control::TaskKey&)>& fetch);

}  // namespace trainyard::cli
