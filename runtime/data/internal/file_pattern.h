// Paths that stand for several files.
#pragma once

#include <string>
#include <vector>

#include "base/core/status.h"

namespace trainyard::runtime::internal {

// The files of each pattern, in which * stands for any bytes and ? for one, neither for a dot at
// the beginning, as in a shell, sorted by name; the patterns in their order. Only the last part of
// a path may have * or ?; a path without them is itself, whether there is such a file or not.
// `field` is what errors begin with. NOT_FOUND where a pattern has no file, the code of errno for a
// folder that cannot be listed, INVALID_ARGUMENT for a pattern in another part of a path.
StatusOr<std::vector<std::string>> filesOf(const std::string& field,
                                           const std::vector<std::string>& patterns);

}  // namespace trainyard::runtime::internal
