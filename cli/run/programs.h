// Programs of the user's own: a job made of a command, and what a user is told of who runs what.
#pragma once

#include <string>
#include <vector>

#include "base/core/status.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::cli {

// A job name for a command: that of the script where the program is an interpreter, else that of
// the program, in the letters that a name may have. "/usr/bin/python3 -u My_train.py" ->
// "my-train".
std::string jobNameOf(const std::vector<std::string>& command);

// `processes` workers that run `command`; they succeed together, and the failure of one ends all.
// INVALID_ARGUMENT says what is wrong with the command.
StatusOr<v1::TrainingJob> jobOfCommand(const std::vector<std::string>& command, int processes);

// As one would type them in a shell.
std::string commandText(const std::vector<std::string>& argv);

// Which tasks run which program, one line each. Nothing for a job of the built-in runtime.
std::vector<std::string> taskPrograms(const v1::TrainingJob& job);
// The same, and which fields of their templates have no effect on this machine.
std::vector<std::string> programNotes(const v1::TrainingJob& job);

}  // namespace trainyard::cli
