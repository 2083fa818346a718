// Scaling, suspending and deleting jobs through their record. Level-based: what is asked for is
// written down, the job's launcher or operator sees it, and these functions wait until it is so;
// asking twice changes nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "cli/jobs/job_view.h"

namespace trainyard::cli {

// How long a verb waits until what it asked for is so.
struct Waiting {
  bool wait = true;  // false: only until it is recorded
  Duration limit = std::chrono::seconds(120);
};

// How many tasks a job is to have; absent: as many as it has.
struct Replicas {
  std::optional<std::int64_t> ps = std::nullopt;
  std::optional<std::int64_t> workers = std::nullopt;
};

// The record of one job, and the wishes that are written into it.
class JobControl {
 public:
  virtual ~JobControl() = default;
  virtual std::string shown() const = 0;  // how messages name it when it is gone
  virtual StatusOr<JobView> read() = 0;   // NOT_FOUND: there is none
  virtual Status setSuspend(bool suspend) = 0;
  // Records a job that nobody looks after as suspended; false where somebody has come to do so.
  virtual StatusOr<bool> suspendAtRest() = 0;
  // The generation that holds the numbers. INVALID_ARGUMENT where the job does not admit them.
  virtual StatusOr<std::int64_t> setReplicas(const Replicas& replicas) = 0;
  virtual Duration look() const = 0;  // between two looks at the record
};

// As the functions on directories below, on any job.
StatusOr<std::string> suspendJob(JobControl& control, const Waiting& waiting, const Clock& clock);
StatusOr<std::string> scaleJob(JobControl& control, const Replicas& replicas,
                               const Waiting& waiting, const Clock& clock);

// Of the local job in `dir`.
std::unique_ptr<JobControl> controlOf(const std::filesystem::path& dir, const Clock& clock);

// Returns what the user is told: "fashion suspended at step 450".
//
// Sets runPolicy.suspend and waits until the job has stopped and its launcher is gone; `wait`
// false: until it is recorded. A job that was interrupted is recorded as suspended.
// INVALID_ARGUMENT, NOT_FOUND: no such job; FAILED_PRECONDITION: it has ended, is being deleted, or
// was resumed meanwhile; DEADLINE_EXCEEDED after `limit`, and it goes on stopping.
StatusOr<std::string> suspendJob(const std::filesystem::path& dir, bool wait, Duration limit,
                                 const Clock& clock);

// Sets ps.replicas and worker.replicas, in job.yaml too, and waits until the job runs with so many;
// `wait` false, or where no launcher looks after the job: until it is recorded. INVALID_ARGUMENT
// where the job does not admit the numbers (its bounds, its batch) or is none; FAILED_PRECONDITION:
// it has ended or is being deleted; DEADLINE_EXCEEDED after `limit`, and it goes on changing.
StatusOr<std::string> scaleJob(const std::filesystem::path& dir, const Replicas& replicas,
                               bool wait, Duration limit, const Clock& clock);

// Ends the job's processes and removes its directory: asks the launcher first, kills it after
// `grace`. Several may do so at once. INVALID_ARGUMENT for a directory that is no run directory, or
// holds anything that no run has made; other errors name the file.
StatusOr<std::string> deleteJob(const std::filesystem::path& dir, Duration grace,
                                const Clock& clock);

}  // namespace trainyard::cli
