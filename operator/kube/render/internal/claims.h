// PersistentVolumeClaims of tasks, as their pods have them.
#pragma once

#include "operator/kube/render/internal/overlay.h"
#include "operator/kube/render/render.h"

namespace trainyard::control::internal {

// INVALID_ARGUMENT: a template of claims of the role has the name of a volume of `pod`, which is
// its PodTemplateSpec.
Status checkClaims(const v1::TrainingJob& job, v1::Role role, const Json& pod);
// In the pod's spec: a volume for each of the task's claims, by the template's name. The template's
// containers mount it, as those of a StatefulSet do.
void addClaimVolumes(const v1::TrainingJob& job, const TaskKey& task, Json& spec);

}  // namespace trainyard::control::internal
