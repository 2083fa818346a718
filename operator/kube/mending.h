// What an object of ours that somebody has changed lacks, as a JSON merge patch (RFC 7386). Pure.
#pragma once

#include "nlohmann/json.hpp"

namespace trainyard::control {

// Makes `found` what `wanted` is. A merge keeps the members that it does not name: those that
// `wanted` does not have are null in it. Lists are replaced. {} where both are the same objects.
nlohmann::json mergePatchTo(const nlohmann::json& found, const nlohmann::json& wanted);

// Of objects as the apiserver has them, which adds fields of its own, and as they are rendered
// (operator/kube/render). null: nothing is to be done.
// A selector of the job's pods, which Services of former releases have, stays. Kubernetes keeps the
// addresses of their pods itself then, and without the selector would leave those that it knew
// last.
nlohmann::json servicePatch(const nlohmann::json& found, const nlohmann::json& wanted);
nlohmann::json endpointSlicePatch(const nlohmann::json& found, const nlohmann::json& wanted);
// Schedulers write only the status of a PodGroup, and fields of its spec that we leave alone.
nlohmann::json podGroupPatch(const nlohmann::json& found, const nlohmann::json& wanted);
nlohmann::json networkPolicyPatch(const nlohmann::json& found, const nlohmann::json& wanted);

}  // namespace trainyard::control
