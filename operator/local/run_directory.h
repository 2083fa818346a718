// The files of one run: the record of a job (what the apiserver holds on Kubernetes) and all that
// its tasks leave behind. The directory is also the job directory of the tasks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "operator/cluster/cluster.h"
#include "trainyard/v1/job.pb.h"
#include "trainyard/v1/membership.pb.h"

namespace trainyard::control {

struct RunPaths {
  std::filesystem::path dir;

  std::filesystem::path job() const { return dir / "job.json"; }      // as handed to the tasks
  std::filesystem::path jobYaml() const { return dir / "job.yaml"; }  // for people, and to compare
  std::filesystem::path status() const { return dir / "status.json"; }
  std::filesystem::path membership() const { return dir / "membership.json"; }
  std::filesystem::path events() const { return dir / "events.jsonl"; }
  std::filesystem::path token() const { return dir / "token"; }
  std::filesystem::path lock() const { return dir / "lock"; }           // held by the launcher
  std::filesystem::path editLock() const { return dir / "edit.lock"; }  // while job.json is changed
  std::filesystem::path launcherLog() const { return dir / "launcher.log"; }
  std::filesystem::path environment() const { return dir / "environment.json"; }
  std::filesystem::path checkpoints() const { return dir / "checkpoints"; }
  std::filesystem::path metrics() const { return dir / "metrics.jsonl"; }
  std::filesystem::path traffic() const { return dir / "traffic.jsonl"; }
  std::filesystem::path report() const { return dir / "report.html"; }
  std::filesystem::path result() const { return dir / "result.json"; }
  std::filesystem::path tasks() const { return dir / "tasks"; }
  std::filesystem::path task(const TaskKey& key) const { return tasks() / toString(key); }
  std::filesystem::path agent(const TaskKey& key) const { return task(key) / "agent.json"; }
  std::filesystem::path command(const TaskKey& key) const { return task(key) / "command.json"; }
  std::filesystem::path lastReport(const TaskKey& key) const { return task(key) / "report.json"; }
  std::filesystem::path taskLog(const TaskKey& key) const { return task(key) / "task.log"; }
};

// What is published by an agent in its agent.json.
struct AgentFile {
  int pid = 0;
  int child_pid = 0;
  std::uint32_t created = 0;
  std::uint32_t start = 0;           // starts of its child so far
  std::uint32_t planned_starts = 0;  // of these, because the membership changed
  std::string ip;
  std::uint32_t agent_port = 0;
  std::uint32_t metrics_port = 0;
  std::uint32_t task_port = 0;
  std::string child;   // Waiting | Running | Exited
  bool ready = false;  // as /readyz says; an agent that does not publish it: its child runs
  int last_exit_code = 0;
  int last_signal = 0;
};
// NOT_FOUND when there is none yet; INVALID_ARGUMENT names the file.
StatusOr<AgentFile> readAgentFile(const std::filesystem::path& path);

// Reads and writes the record. Every write replaces a whole file, so that a reader (or the next
// launcher after a crash) never sees half of one. The spec and the status are two files, each with
// its own count; `metadata.resourceVersion` is "<generation>.<writes of the status>". Not
// thread-safe; blocks for the disk.
class RunRecord {
 public:
  explicit RunRecord(RunPaths paths) : paths_(std::move(paths)) {}
  const RunPaths& paths() const { return paths_; }

  // Spec, metadata and status. NOT_FOUND without job.json.
  StatusOr<v1::TrainingJob> read() const;
  // Replaces metadata and spec; `job`'s generation is what is recorded. The status stays.
  Status writeSpec(const v1::TrainingJob& job);
  // Changes metadata and spec under a lock of all processes, so that no edit is lost; counts the
  // generation up. Nothing is written where `change` returns false. NOT_FOUND when the job is gone;
  // FAILED_PRECONDITION naming the process whose edit does not end within 5 s.
  Status edit(const Clock& clock, const std::function<bool(v1::TrainingJob*)>& change);
  // FAILED_PRECONDITION unless `resource_version` is the current one.
  Status writeStatus(const std::string& resource_version, const v1::JobStatus& status);
  // Makes the status what a new launcher starts from: a job at rest, as after a suspension, whose
  // tasks get higher numbers than those of earlier lives; all else that was counted is forgotten. A
  // job that was never launched stays without a status.
  Status restStatus();

  // Nothing where none is recorded.
  StatusOr<std::optional<v1::Membership>> readMembership() const;
  // FAILED_PRECONDITION unless the revision is the recorded one + 1 (1 at first), or equal with
  // equal content (then nothing is written).
  Status writeMembership(const v1::Membership& membership);

  // One line of events.jsonl: {"time","type","reason","message"}.
  Status appendEvent(UnixMillis at, std::string_view type, std::string_view reason,
                     std::string_view message);

 private:
  RunPaths paths_;
};

}  // namespace trainyard::control
