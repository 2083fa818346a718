// What an agent is told of the user's own program: command.json in the task's folder.
#pragma once

#include <filesystem>

#include "base/core/status.h"
#include "trainyard/v1/job.pb.h"
#include "trainyard/v1/membership.pb.h"

namespace trainyard::control {

// {"argv": [...], "env": [["NAME", "value"], ...], "workingDir": "/...", "volumes": {"name":
// "/folder"}}, for the tasks of `role`; only the user may read it, for `env` may hold secrets.
Status writeCommandFile(const std::filesystem::path& path, const v1::TrainingJob& job,
                        v1::Role role);

}  // namespace trainyard::control
