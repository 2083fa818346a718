// Which parameter server holds which part of which variable, for people.
#pragma once

#include <string>

#include "runtime/placement/placement.h"

namespace trainyard::runtime {

// A Markdown table with a row for each part, in the order of variables, of which the first 1000 are
// shown, under one line for each server with the bytes that it holds. Pure.
std::string placementTable(const Placement& placement);

// "0 to 500 of 1,000, axis 0", "all"; a part of Balanced counts elements, others slices of an axis.
std::string rangeText(const Variable& variable, const Part& part);

}  // namespace trainyard::runtime
