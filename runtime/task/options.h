// What a runtime process is told on its command line, parsed once in main.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "base/security/job_keys.h"
#include "runtime/stream/stream.h"
#include "trainyard/v1/agent.pb.h"
#include "trainyard/v1/coordinator.pb.h"
#include "trainyard/v1/job.pb.h"
#include "trainyard/v1/measurements.pb.h"
#include "trainyard/v1/membership.pb.h"

namespace trainyard {
struct TaskServerOptions;  // of base/rpc/task_server.h, which includes gRPC
}

namespace trainyard::runtime {

class FileService;
class RemoteFiles;

struct TaskOptions {
  v1::TrainingJob job;
  v1::TaskId id;
  v1::Incarnation self;
  std::string job_dir;           // checkpoints/, metrics.jsonl, events/
  std::string checkpoints;       // where they are (runtime/storage/storage.h); "": in job_dir
  RemoteFiles* files = nullptr;  // by which they are reached, where the coordinator has the disk
  std::string task_dir;          // positions.jsonl
  std::string program;  // a worker whose model is a program's: its command (program_command.h)
  std::string bind = "127.0.0.1";
  std::uint16_t port = 0;    // of a ps, and of whoever hosts the coordinator
  std::string token;         // of the job: for the agent, and between ranks
  RuntimeKeys keys;          // derived from it
  std::string agent_target;  // gRPC target of the agent's report socket; empty: none
  // In place of an agent: takes the task's report and says what it wants. Called from one thread.
  std::function<v1::RuntimeDirective(const v1::RuntimeReport&)> local_agent = {};
  v1::Membership membership;
  int threads = 1;
  std::string threads_reason;  // for the log
  const Clock* clock = nullptr;

  // And the keys that follow from it.
  void setToken(const std::string& value) {
    token = value;
    keys = deriveRuntimeKeys(value);
  }
  // Ends the process, whatever it is doing: another one has taken its place, and waits for nothing
  // of it. From any thread. Empty: nobody does.
  std::function<void(const Status&)> end_at_once = {};

  std::string checkpointDir() const {
    return checkpoints.empty() ? job_dir + "/checkpoints" : checkpoints;
  }
  // Where metrics.jsonl and events/ are copied to, since job_dir may go with the pod; "": nowhere.
  std::string recordsPlace() const;
};

// How the task listens at its port.
TaskServerOptions taskServerOptions(const TaskOptions& options);

// SHA-256 (hex) over the resolved training section, whether data are encrypted, and the content of
// the file of a TorchScript model: tasks of one job agree on it. Errors name the file.
StatusOr<std::string> jobDigest(const v1::TrainingJob& job);

// Of gradients and weights between the tasks (network.encryption); null: they are not encrypted.
// INTERNAL: the job's certificates cannot be read.
StatusOr<std::shared_ptr<const stream::Encryption>> dataEncryption(const TaskOptions& options);

// Modes Async and BoundedDelay: no worker waits for another's gradient.
bool isAsynchronous(const v1::UpdateSpec& update);

// Strategy AllReduce: there are no parameter servers.
bool isRing(const v1::TrainingJob& job);

// Training processes of each worker.
int processesPerPod(const v1::TrainingJob& job);

// Place of a worker's process among those of the membership that have its address.
int localRank(const TaskOptions& options);

// The task whose process hosts the coordinator: ps-0, with strategy AllReduce worker-0, its first
// process.
bool hostsCoordinator(const TaskOptions& options);
// Whether that task alone has the disk with the checkpoints (storage.access).
bool coordinatorHasDisk(const v1::TrainingJob& job);
// For the others, where this is that task.
std::unique_ptr<FileService> serveFiles(const TaskOptions& options);
// From now on this process reaches the checkpoints as the job says: by the coordinator's process,
// unless it is that. For main files, once.
void useJobsDisk(TaskOptions& options);
// "ip:port" of the coordinator's home; empty when not in the membership.
std::string coordinatorAddress(const v1::TrainingJob& job, const v1::Membership& membership);

// Chunk grid of a job with parameter servers: the same in all of its processes, whenever they
// start and however many servers there are by then.
struct GridServers {
  int start = 0;  // servers at the job's start
  int most = 0;   // that the chunks are small enough for
};
GridServers gridServers(const v1::TrainingJob& job, const v1::Membership& membership);

// Reports with what is the same in every one of this process: who it is, and of which job.
v1::MemberReport identifiedMemberReport(const TaskOptions& options, const std::string& job_digest);
v1::RuntimeReport identifiedRuntimeReport(const TaskOptions& options);
v1::Measurements identifiedMeasurements(const TaskOptions& options);

}  // namespace trainyard::runtime
