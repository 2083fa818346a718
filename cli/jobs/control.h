// Scaling, suspending and deleting local jobs through their record. Level-based: what is asked for
// is written down, the job's launcher sees it, and these functions wait until it is so; asking
// twice changes nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/core/clock.h"
#include "base/core/status.h"

namespace trainyard::cli {

// Returns what the user is told: "fashion suspended at step 450".
//
// Sets runPolicy.suspend and waits until the job has stopped and its launcher is gone; `wait`
// false: until it is recorded. A job that was interrupted is recorded as suspended.
// INVALID_ARGUMENT, NOT_FOUND: no such job; FAILED_PRECONDITION: it has ended, is being deleted, or
// was resumed meanwhile; DEADLINE_EXCEEDED after `limit`, and it goes on stopping.
StatusOr<std::string> suspendJob(const std::filesystem::path& dir, bool wait, Duration limit,
                                 const Clock& clock);

// Sets worker.replicas, in job.yaml too, and waits until the job runs with so many; `wait` false,
// or where no launcher looks after the job: until it is recorded. INVALID_ARGUMENT where the job
// does not admit the number (its bounds, its batch) or is none; FAILED_PRECONDITION: it has ended
// or is being deleted; DEADLINE_EXCEEDED after `limit`, and it goes on changing.
StatusOr<std::string> scaleJob(const std::filesystem::path& dir, std::int64_t workers, bool wait,
                               Duration limit, const Clock& clock);

// Ends the job's processes and removes its directory: asks the launcher first, kills it after
// `grace`. Several may do so at once. INVALID_ARGUMENT for a directory that is no run directory, or
// holds anything that no run has made; other errors name the file.
StatusOr<std::string> deleteJob(const std::filesystem::path& dir, Duration grace,
                                const Clock& clock);

}  // namespace trainyard::cli
