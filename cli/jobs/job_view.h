// A local job as its run directory tells it: what `trainyard get` and its neighbours show and
// decide by. Reading disturbs nobody: no lock is taken, and nothing is written.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/core/status.h"
#include "cli/report/records.h"
#include "operator/cluster/cluster.h"
#include "runtime/checkpoint/checkpoint.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::cli {

struct JobView {
  std::string name;           // of the directory: what the verbs are given
  std::filesystem::path dir;  // as it was found
  v1::TrainingJob job;        // as recorded
  std::optional<pid_t> launcher;
  // Succeeded | Failed | Suspended | Running | Restarting as recorded, where they still hold; else
  // Starting (the launcher is there, not all tasks are ready yet), Suspending, Interrupted (the
  // launcher went without an end), Terminating (being deleted).
  std::string state;
  // The newest complete step, from where a job at rest goes on; 0 steps: not known.
  std::int64_t step = 0;
  std::int64_t steps = 0;
  std::optional<std::int64_t> checkpoint_step;
  std::optional<double> loss;
  std::optional<double> accuracy;
  std::optional<double> examples_per_second;  // of a job that runs or has succeeded
  // Of one that has succeeded, in the modes that have such: see RunResult.
  std::optional<std::int64_t> skipped;
  std::optional<std::int64_t> spread;
  std::optional<std::int64_t> partial;

  bool finished() const { return state == "Succeeded" || state == "Failed"; }
};

// The state as above, from the record and whether a launcher is there. Pure.
std::string shownState(const v1::TrainingJob& recorded, bool has_launcher);
// Why a job has failed: "BadInput: worker-1: ..."; "" for one that has not. Pure.
std::string failureOf(const v1::TrainingJob& recorded);

// NOT_FOUND where the directory holds no job; other errors name the file.
StatusOr<JobView> readJob(const std::filesystem::path& dir);

struct TaskView {
  std::string name;   // "ps-0"
  std::string state;  // Ready | Running | Waiting | Exited (code 3) | Gone | -
  pid_t agent = 0;    // 0: none lives
  pid_t process = 0;
  std::uint32_t created = 0;  // number of its life
  std::uint32_t starts = 0;   // of its program in this life
  std::int32_t restarts = 0;  // over all lives of this run
  std::uint32_t metrics_port = 0;
};

// All that `describe` shows.
struct JobDetails {
  JobView view;
  std::vector<TaskView> tasks;
  std::vector<runtime::Manifest> checkpoints;  // newest first
  std::vector<std::string> problems;           // unreadable manifests
  std::vector<EventRecord> events;             // as they happened
};
StatusOr<JobDetails> readDetails(const std::filesystem::path& dir);

}  // namespace trainyard::cli
