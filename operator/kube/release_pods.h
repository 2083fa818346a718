// Lets go of the pods of all jobs.
#pragma once

#include <string>
#include <vector>

#include "base/core/status.h"
#include "operator/kube/client.h"

namespace trainyard::control {

// Takes our finalizer off every pod of a job in `namespaces` (none: in all). For the time when
// no operator is left that would do so: such pods could not be deleted, and their namespace
// neither. Returns how many pods had it. One that is gone by now is none. A pod that cannot be
// written holds back no other: the first failure is returned at the end, with how many there were.
StatusOr<int> releasePods(KubeClient& client, const std::vector<std::string>& namespaces);

}  // namespace trainyard::control
