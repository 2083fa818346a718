// Where a pod is to go: what schedulers read of it.
#pragma once

#include "operator/kube/render/internal/overlay.h"
#include "operator/kube/render/render.h"

namespace trainyard::control::internal {

// In a pod's metadata: the group that it belongs to, of jobs whose tasks are placed together.
void joinGang(const v1::TrainingJob& job, const RenderOptions& options, Json& meta);
// In its spec, where the template says nothing of that: scheduler, priority, which nodes.
void placePod(const v1::TrainingJob& job, const TaskKey& task, const RenderOptions& options,
              Json& spec);

}  // namespace trainyard::control::internal
