// The command line as a whole: which verbs there are, and what a wrong one is answered.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace trainyard::cli {

// Parses `arguments` (without the program's name) and runs the chosen verb. Returns the exit code:
// kExitUsage for a wrong verb or flag, else the verb's own.
int runApp(const std::vector<std::string>& arguments, const Console& console);

}  // namespace trainyard::cli
