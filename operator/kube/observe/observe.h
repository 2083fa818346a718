// What the apiserver's objects say of a job. Pure.
#pragma once

#include <optional>
#include <string>

#include "base/core/status.h"
#include "nlohmann/json.hpp"
#include "operator/cluster/cluster.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::control {

// INVALID_ARGUMENT names the JSON path. Members that this release does not know are passed over: a
// newer CRD may have them.
StatusOr<v1::TrainingJob> readJob(const nlohmann::json& object);

// The task that a pod is. Nothing for a pod without our labels.
//
// The termination of the task's container decides, whatever else lives on in the pod. A pod that
// the node or the scheduler ended (eviction, preemption, lost node, its DisruptionTarget condition)
// is disrupted. 128 + n as exit code is death by signal n. `host` and `port` are filled in by the
// caller.
std::optional<TaskObservation> observePod(const nlohmann::json& pod);

// Leaves of a pod what observePod() and the functions below say of it, and KubeCluster asks for:
// that is a small part of it.
void trimPod(nlohmann::json& pod);

// The uid of the controller that owns the object; "" when there is none.
std::string controllerUid(const nlohmann::json& object);
// "" where there is none.
std::string labelOf(const nlohmann::json& object, std::string_view label);
std::string annotationOf(const nlohmann::json& object, std::string_view annotation);
bool isTerminating(const nlohmann::json& object);
bool hasFinalizer(const nlohmann::json& object, std::string_view finalizer);

// The JSON merge patch (RFC 7386) that makes `before` into `after`; an empty object when they are
// equal.
nlohmann::json mergePatch(const nlohmann::json& before, const nlohmann::json& after);
// The patch of the status subresource, conditional on the job's resource version.
nlohmann::json statusPatch(const v1::TrainingJob& job, const v1::JobStatus& status);

}  // namespace trainyard::control
