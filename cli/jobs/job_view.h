// A job as its record tells it, which is a run directory of this machine or an object of a cluster:
// what `trainyard get` and its neighbours show and decide by. Reading disturbs nobody: no lock is
// taken, and nothing is written.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/core/status.h"
#include "cli/report/records.h"
#include "nlohmann/json.hpp"
#include "operator/cluster/cluster.h"
#include "runtime/checkpoint/checkpoint.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::cli {

struct JobView {
  std::string name;               // what the verbs are given: of the directory, or of the object
  std::filesystem::path dir;      // of a local job, as it was found
  std::optional<pid_t> launcher;  // of a local job
  std::string ns;                 // namespace of a cluster's job; "": a local one
  nlohmann::json object;          // a cluster's job as the apiserver has it
  v1::TrainingJob job;            // as recorded
  // Succeeded | Failed | Suspended | Running | Restarting as recorded, where they still hold; else
  // Starting (the launcher is there, not all tasks are ready yet), Suspending, Interrupted (the
  // launcher went without an end), Terminating (being deleted), Pending (of a cluster: no operator
  // has taken it up yet).
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

  bool inCluster() const { return !ns.empty(); }
  // Whether somebody looks after it, so that a wish is carried out at once.
  bool attended() const { return inCluster() ? state != "Suspended" : launcher.has_value(); }
  bool finished() const { return state == "Succeeded" || state == "Failed"; }
};

// The state as above, from the record and whether a launcher is there. Pure.
std::string shownState(const v1::TrainingJob& recorded, bool has_launcher);
// Why a job has failed: "BadInput: worker-1: ..."; "" for one that has not. Pure.
std::string failureOf(const v1::TrainingJob& recorded);

// Steps, loss, accuracy and rate as the recorded status has them.
void takeProgress(JobView* view);

// NOT_FOUND where the directory holds no job; other errors name the file.
StatusOr<JobView> readJob(const std::filesystem::path& dir);

struct TaskView {
  std::string name;  // "ps-0"
  // Ready | Running | Waiting | Exited (code 3) | Gone | - ; of a pod also Terminating, Disrupted,
  // and why it waits: Waiting (Unschedulable).
  std::string state;
  pid_t agent = 0;  // 0: none lives
  pid_t process = 0;
  std::uint32_t created = 0;  // number of its life
  std::uint32_t starts = 0;   // of its program in this life
  std::int32_t restarts = 0;  // over all lives of this run
  std::uint32_t metrics_port = 0;
  // Of a cluster's job; "": there is no pod, or it has no node yet.
  std::string pod;
  std::string node;
  std::string since;  // when the pod was created, RFC 3339
};

// What the status has recorded of a task, as if nothing else were known of it.
TaskView recordedTask(const control::TaskKey& key, const v1::JobStatus& status);

// All that `describe` shows.
struct JobDetails {
  JobView view;
  std::vector<TaskView> tasks;
  std::vector<runtime::Manifest> checkpoints;  // newest first
  std::vector<std::string> problems;           // unreadable manifests
  std::vector<EventRecord> events;             // as they happened
  // Why tasks or events cannot be shown; "": they are.
  std::string tasks_hidden;
  std::string events_hidden;
};
StatusOr<JobDetails> readDetails(const std::filesystem::path& dir);

}  // namespace trainyard::cli
