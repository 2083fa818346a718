// Programs of the user's own: a job made of a command, and what a user is told of who runs what.
#pragma once

#include <string>
#include <vector>

#include "base/core/status.h"
#include "nlohmann/json.hpp"
#include "trainyard/v1/job.pb.h"

namespace trainyard::cli {

// A job name for a command: that of the script where the program is an interpreter, else that of
// the program, in the letters that a name may have. "/usr/bin/python3 -u My_train.py" ->
// "my-train".
std::string jobNameOf(const std::vector<std::string>& command);

// The most processes that a command may ask for.
inline constexpr int kMaxProcesses = 4096;

// A command that is started so many times.
struct CommandJob {
  std::vector<std::string> command;
  int processes = 1;
  bool horovod = false;   // see withHorovodNames()
  std::string name = "";  // "": jobNameOf() the command
  // In a cluster; "": that of the template, which has none.
  std::string image = "";
  int gpus = 0;  // for each process
};

// The document of a job of so many workers that run the command; they succeed together, and the
// failure of one ends all. INVALID_ARGUMENT says what is wrong with it.
StatusOr<nlohmann::ordered_json> documentOf(const CommandJob& command);
// The same, with defaults.
StatusOr<v1::TrainingJob> jobOfCommand(const CommandJob& command);

// A Python program as one that finds ours where it imports Horovod: "python3 -u train.py --x" ->
// "python3 -u -m trainyard.compat train.py --x". INVALID_ARGUMENT where the command is no script or
// module of a Python that is named.
StatusOr<std::vector<std::string>> withHorovodNames(const std::vector<std::string>& command);

// As one would type them in a shell.
std::string commandText(const std::vector<std::string>& argv);

// Which tasks run which program, one line each. Nothing for a job of the built-in runtime.
std::vector<std::string> taskPrograms(const v1::TrainingJob& job);
// The same, and which fields of their templates have no effect on this machine.
std::vector<std::string> programNotes(const v1::TrainingJob& job);

}  // namespace trainyard::cli
