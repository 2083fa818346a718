// The Cluster interface over processes of this machine: one job, one run directory, one agent
// process per task.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/core/clock.h"
#include "base/core/log.h"
#include "base/core/status.h"
#include "base/process/child_process.h"
#include "base/process/pipe.h"
#include "operator/cluster/agent_directory.h"
#include "operator/cluster/cluster.h"
#include "operator/local/run_directory.h"

namespace trainyard::control {

// Where tasks run that are not simply processes beside the launcher, such as in network namespaces
// of their own.
struct TaskPlaces {
  // A command that starts the program given after its own arguments in its own process (exec, so
  // that signals and the process number are the program's), such as {"nsenter",
  // "--net=/run/netns/{task}"}. "{task}" stands for the task's name, "ps-0". Empty: none.
  std::vector<std::string> wrapper;
  // What a task listens at and the others and the launcher reach it by; 127.0.0.1 for tasks that
  // are not here.
  std::map<TaskKey, std::string> addresses;
};

struct LocalClusterOptions {
  std::string dir;           // the run directory, locked by the caller; holds job.json and token
  std::string agent_path;    // trainyard-agent
  std::string runtime_path;  // trainyard-runtime, started by the agents
  LogFormat log_format = LogFormat::kText;
  TaskPlaces places;
  // How long a deleted task may take to end by itself. Those with a program of the user's own have
  // runPolicy.stopSeconds and a moment.
  Duration stop_grace = std::chrono::seconds(10);
  // The process is a subreaper (becomeSubreaper()): what agents that were killed leave behind is
  // reaped as it ends.
  bool reaps_orphans = false;
};

// Owns the agents: they hold the reading end of a pipe and end when the launcher is gone, however
// it went. The destructor ends every task: SIGTERM, 3 s, SIGKILL; it returns within 5 s.
//
// Thread-safe. A thread of its own reaps agents, ends those that outlive their grace, and looks at
// the files ten times a second, more often while agents start; `changed` is called from it and from
// the threads that change something, one call at a time, and must not call back into the cluster.
// After watch({}) no call is under way. State of a task: pending (spawned) -> running (agent.json
// there) -> succeeded | failed (agent ended); deleting a task that runs makes it terminating, and
// its end then removes it.
class LocalCluster : public Cluster, public AgentDirectory {
  struct Private {
    explicit Private() = default;
  };

 public:
  // Ends what an earlier launcher of this directory may have left behind (it was killed a moment
  // ago), then starts. `clock` must tell the real time.
  static StatusOr<std::unique_ptr<LocalCluster>> open(LocalClusterOptions options,
                                                      const Clock& clock);
  // For open() only.
  LocalCluster(Private, LocalClusterOptions options, const Clock& clock, JobKey key,
               Pipe launcher_pipe, WakeUp wake, WakeUp rest);
  ~LocalCluster() override;

  Status watch(std::function<void(const JobKey&)> changed) override;
  StatusOr<std::vector<JobKey>> listJobs() override;
  StatusOr<JobObservation> observe(const JobKey& key) override;
  Status createTask(const v1::TrainingJob& job, const TaskKey& task,
                    std::uint32_t created) override;
  Status deleteTask(const v1::TrainingJob& job, const TaskKey& task,
                    std::uint32_t created) override;
  // UNIMPLEMENTED: what a run leaves is the user's. observe() tells of no ttl.
  Status deleteJob(const v1::TrainingJob& job) override;
  Status publish(const v1::TrainingJob& job, const v1::Membership& membership) override;
  Status writeStatus(const v1::TrainingJob& job, const v1::JobStatus& status) override;
  Status recordEvent(const v1::TrainingJob& job, std::string_view type, std::string_view reason,
                     std::string_view message) override;

  StatusOr<std::vector<AgentEndpoint>> agents(const JobKey& key) override;
  StatusOr<std::string> token(const JobKey& key) override;

  // Changes spec.runPolicy.suspend in the record, as an edit by a user would.
  Status setSuspend(bool suspend);
  // SIGKILL for every task and what it started. Does not wait.
  void killAll();
  bool idle();  // no task's process lives
  // Readable after each change while idle() again, for poll(): the job's end is among them.
  int restFd() const { return rest_.fd(); }
  void clearRest() { rest_.clear(); }

 private:
  struct Task {
    Task(ChildProcess spawned, std::uint32_t creation)
        : process(std::move(spawned)), created(creation) {}
    ChildProcess process;
    std::uint32_t created;
    bool terminating = false;
    Duration stop_grace{};  // from when it is deleted
    std::optional<TimePoint> kill_at;
    std::optional<ExitState> exit;
    UnixMillis ended_ms = 0;  // with `exit`
    std::string cause;
    std::optional<AgentFile> agent;
    std::string agent_text;                    // as last read
    std::optional<v1::JobProgress> last_word;  // with `exit`
  };
  using Lock = std::unique_lock<std::mutex>;

  void monitor();
  bool lookAtTasks();
  bool lookAtTask(const TaskKey& key, Task& task);
  bool readAgent(const TaskKey& key, Task& task);
  bool lookAtRecord();
  void killTask(const TaskKey& key, Task& task);
  void notify();
  SpawnOptions agentCommand(const TaskKey& task, std::uint32_t created) const;
  StatusOr<std::vector<std::string>> programFlags(const v1::TrainingJob& job,
                                                  const TaskKey& task) const;
  Duration stopGrace(const v1::TrainingJob& job) const;
  int portToKeep(const TaskKey& task) const;
  TaskObservation observeTask(const TaskKey& key, const Task& task) const;

  const LocalClusterOptions options_;
  const Clock& clock_;
  const JobKey key_;
  const RunPaths paths_;
  Pipe launcher_pipe_;  // its writing end closes with this process
  WakeUp wake_;
  WakeUp rest_;
  std::atomic<bool> began_ = false;  // a task was created

  std::mutex callback_mutex_;  // held while `changed_` runs; never taken with mutex_ held
  std::function<void(const JobKey&)> changed_;

  std::mutex mutex_;  // guards all below
  RunRecord record_;
  std::map<TaskKey, Task> tasks_;
  std::string seen_record_;  // resource version at the last look
  bool stopping_ = false;

  std::thread thread_;  // last: it uses all above
};

}  // namespace trainyard::control
