// What `trainyard run` makes of the directory it is given: a new run, one to be resumed, a finished
// one, or somebody else's files.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "base/process/files.h"
#include "cli/run/result.h"
#include "nlohmann/json.hpp"
#include "operator/local/run_directory.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::cli {

struct DirectoryOptions {
  std::string dir;                             // as the user gave it
  std::string cwd;                             // for relative paths of the job
  std::map<std::string, std::string> volumes;  // name -> folder
  bool start_anew = false;                     // --new
};

struct OpenedRun {
  control::RunPaths paths;
  FileLock lock;
  v1::TrainingJob job;                // as recorded
  std::string headline;               // "resuming 'fashion' from step 450 of 700"
  std::vector<std::string> warnings;  // checkpoints that cannot be gone on from, one line each
  std::vector<std::string> notes;     // who runs what, where these are programs of the user's own
  std::optional<RunResult> finished;  // there is nothing to do
};

// Locks the directory (created with mode 0700) and records `job` (as loadJob() gives it) in it. An
// unfinished run is resumed: its steps, evaluation, checkpoint, run policy and number of workers
// may differ from the recorded ones, steps and passes only upwards. INVALID_ARGUMENT names the
// first other field that differs, the foreign file in the directory, or the missing volume;
// FAILED_PRECONDITION the process that holds the lock.
StatusOr<OpenedRun> openRunDirectory(const DirectoryOptions& options, const v1::TrainingJob& job,
                                     const Clock& clock);

// Locks the directory of a job that is recorded and unfinished, whoever launched it, and records
// that it goes on: as openRunDirectory() without a job file. NOT_FOUND where no job is recorded;
// INVALID_ARGUMENT for a job that has finished or is being deleted; FAILED_PRECONDITION as above.
StatusOr<OpenedRun> reopenRun(const std::string& dir, const Clock& clock);

// Whether a launcher of the job may start: INVALID_ARGUMENT for one that is being deleted.
Status checkNotDeleted(const std::string& dir, const v1::TrainingJob& recorded);

struct FieldChange {
  std::string path;  // below spec: "training.batchSize"
  std::string before, after;
};
// Fields that differ, lists as wholes. Pure.
std::vector<FieldChange> changesOf(const nlohmann::ordered_json& before,
                                   const nlohmann::ordered_json& after);
// Those that may not between two launches of a run. Pure.
std::vector<FieldChange> forbiddenChanges(const nlohmann::ordered_json& before,
                                          const nlohmann::ordered_json& after);

// The first entry of a directory that no run of ours has made; "" where there is none.
std::string foreignEntry(const std::filesystem::path& dir);

}  // namespace trainyard::cli
