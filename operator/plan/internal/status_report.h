// The parts of a status that only report: counts per role, progress, checkpoint.
#pragma once

#include <optional>
#include <vector>

#include "operator/plan/internal/job_view.h"

namespace trainyard::control {

// Writes ps and worker: desired, replicas (pending or running), ready, succeeded, failed, indices.
// What has finished stays counted when its task is deleted.
void reportRoles(const v1::TrainingJob& job, const std::vector<TaskView>& tasks,
                 v1::JobStatus* status);

// How often `progress` is written while nothing else changes.
inline constexpr Duration kProgressInterval = std::chrono::seconds(10);

// Writes progress, checkpoint, lostSteps and membership.epoch. The progress block is renewed when
// `state_changed`, or when kProgressInterval, or `every` if that is longer, has passed since it
// was; returns when it may be renewed next, if it is behind.
std::optional<UnixMillis> reportProgress(const v1::JobProgress& progress, UnixMillis now,
                                         Duration every, bool state_changed, v1::JobStatus* status);

}  // namespace trainyard::control
