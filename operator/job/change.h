// What may change in the spec of a job that is there: the transition rules of deploy/crds.yaml
// (those with oldSelf) once more, because CEL runs in the apiserver only. The cases of
// tests/conformance/validation/changes.yaml hold the two together.
#pragma once

#include <string_view>
#include <vector>

#include "nlohmann/json.hpp"
#include "operator/job/job.h"

namespace trainyard::control {

enum class JobLife {
  kRuns,   // it has tasks, or may have some
  kRests,  // suspended, and none of its tasks is left or was ever made
  kEnded,  // Succeeded or Failed
};
// By spec and status as recorded, before the change.
JobLife lifeOf(const v1::TrainingJob& recorded);

// Whether a field, as a path below spec ("worker.replicas"), may change while the job runs.
bool mayChangeWhileRunning(std::string_view path);

// What of the change from one spec to the other is refused: one problem per rule (file and line are
// not known). Both have their defaults.
std::vector<JobProblem> checkChange(const nlohmann::ordered_json& before,
                                    const nlohmann::ordered_json& after, JobLife life);

}  // namespace trainyard::control
