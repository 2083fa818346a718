// What a pod template says of the program that a task runs, for jobs without `training`. To the
// schema a template is opaque: the fields that matter here are checked when they are read.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/core/status.h"
#include "nlohmann/json.hpp"
#include "trainyard/v1/job.pb.h"
#include "trainyard/v1/membership.pb.h"

namespace trainyard::control {

// The task's container: the one named "task", else the first.
struct TaskCommand {
  std::vector<std::string> argv;  // command and args, as written: $(NAME) stays
  std::vector<std::pair<std::string, std::string>> env;
  std::string working_dir;  // "": not given
  // Fields that mean nothing to a process of this machine, as paths:
  // "spec.worker.template.spec.containers[0].image".
  std::vector<std::string> ignored;
};

// A job without `training` runs programs of the user's own.
inline bool isForeign(const v1::TrainingJob& job) {
  return !job.spec().has_training();
}

// `training` trains a model that a program of the user's own declares: the workers are our runtime
// and that program beside it.
inline bool bringsModel(const v1::TrainingJob& job) {
  return job.spec().training().model().name() == "program";
}

// Whether the role's template says what its tasks run.
inline bool namesProgram(const v1::TrainingJob& job, v1::Role role) {
  return isForeign(job) || (bringsModel(job) && role == v1::ROLE_WORKER);
}

// What becomes of a running program when tasks come or go: worker.onMembershipChange, or its
// default.
inline std::string onMembershipChange(const v1::TrainingJob& job) {
  const v1::WorkerSpec& worker = job.spec().worker();
  if (worker.has_on_membership_change()) return worker.on_membership_change();
  return isForeign(job) ? "Restart" : "Live";
}

// Where in a PodTemplateSpec the task's container stands: the one named "task", else the first;
// nothing when there is none.
std::optional<std::size_t> taskContainer(const nlohmann::ordered_json& pod);

// Trainyard sets the variable itself for every program.
bool isSetByUs(std::string_view name);

// The template of the role as it stands in the job, "" where there is none.
const std::string& templateText(const v1::TrainingJob& job, v1::Role role);
std::string templatePath(v1::Role role);  // "spec.ps.template"

// Of the tasks of `role`. INVALID_ARGUMENT naming the field: there is no command, a field has
// another type than Kubernetes gives it, or `env` has a name that Trainyard sets itself.
StatusOr<TaskCommand> taskCommand(const v1::TrainingJob& job, v1::Role role);
// Whether that failed for want of a command, rather than for a wrong one.
bool isCommandMissing(const Status& status);

// Makes `workingDir` of the task containers that name a program absolute against `cwd`, which it is
// when it is not given.
Status resolveWorkingDirs(const std::string& cwd, v1::TrainingJob* job);

}  // namespace trainyard::control
