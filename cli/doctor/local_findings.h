// What is to be said of this machine. Pure.
#pragma once

#include <vector>

#include "cli/doctor/finding.h"
#include "cli/doctor/local_facts.h"

namespace trainyard::cli {

std::vector<Finding> localFindings(const LocalFacts& facts);

}  // namespace trainyard::cli
