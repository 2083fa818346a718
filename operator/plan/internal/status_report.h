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

// How many tasks are there and ready, which ones if `indices`, and what conditions say of it in
// words, is all that `next` tells beyond `recorded`.
bool onlyCounts(const v1::JobStatus& recorded, v1::JobStatus next, bool indices);

// How often `progress` is written while nothing else changes.
inline constexpr Duration kProgressInterval = std::chrono::seconds(10);

// Writes progress, checkpoint, lostSteps and membership.epoch. The progress block is renewed when
// `state_changed`, or when the job's turn has come and kProgressInterval, or what its source says
// if that is longer, has passed since it was; returns when it may be renewed next, if it is behind.
std::optional<UnixMillis> reportProgress(const v1::JobProgress& progress, const PlannerInput& input,
                                         bool state_changed, v1::JobStatus* status);

}  // namespace trainyard::control
