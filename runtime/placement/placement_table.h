// Which parameter server holds which part of which variable, for people.
#pragma once

#include <string>

#include "runtime/placement/placement.h"

namespace trainyard::runtime {

// A Markdown table with a row for each part, in the order of variables, of which the first 1000 are
// shown, under one line for each server with the bytes that it holds. Pure.
std::string placementTable(const Placement& placement);

}  // namespace trainyard::runtime
