// Taking our finalizer off a pod.
#pragma once

#include <optional>

#include "base/core/status.h"
#include "nlohmann/json.hpp"
#include "operator/kube/client.h"

namespace trainyard::control {

// Takes kResultFinalizer off `pod`, a pod as read at any time, and leaves those of others. The
// kubelet writes to pods, too: what has changed is read and tried again a few times. The pod as it
// is afterwards; nothing where there was nothing to take: it does not have it, is gone, or another
// pod has its name by now.
//
// Errors as of the client, with the pod's name; FAILED_PRECONDITION: others wrote first each time.
StatusOr<std::optional<nlohmann::json>> removeResultFinalizer(KubeClient& client,
                                                              nlohmann::json pod);

}  // namespace trainyard::control
