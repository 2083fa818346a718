// What becomes of an exception that ended a pass. Only the .cc files of runtime/model include it.
#pragma once

#include <exception>
#include <string_view>

#include "base/core/status.h"

namespace trainyard::runtime {

// `what`: "training pass". RESOURCE_EXHAUSTED for std::bad_alloc, else INTERNAL.
Status failedPass(std::string_view what, int samples, const std::exception& failure);

}  // namespace trainyard::runtime
