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

// How often what waits for nothing else is written.
inline constexpr Duration kProgressInterval = std::chrono::seconds(10);

// Writes progress, checkpoint, lostSteps and membership.epoch. The progress block is renewed with
// the first and the last word, when `state_changed`, and when the source says so, if it had not
// been renewed within half of kProgressInterval before. Who is behind waits for the source, which
// has the job looked at again.
void reportProgress(const v1::JobProgress& progress, const PlannerInput& input, bool state_changed,
                    v1::JobStatus* status);

}  // namespace trainyard::control
