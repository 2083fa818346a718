// The command line of tasks that are started by hand.
#pragma once

#include <string>
#include <vector>

#include "runtime/task/by_hand.h"

namespace CLI {
class App;
}

namespace trainyard::runtime {

// Whether the arguments (without the program's name) are those of a task by hand: with a verb
// (`ps --task_index=0`) or without (`--job_name=ps --task_index=0`).
bool isByHand(const std::vector<std::string>& arguments);

void addHandFlags(CLI::App& app, HandFlags& flags);

}  // namespace trainyard::runtime
