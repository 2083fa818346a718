#include "operator/local/local_cluster.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "base/core/strings.h"
#include "base/process/files.h"
#include "base/process/poll.h"
#include "fmt/format.h"
#include "operator/cluster/failure_policy.h"
#include "operator/cluster/stop_seconds.h"
#include "operator/job/template.h"
#include "operator/local/command_file.h"
#include "operator/local/last_report.h"
#include "operator/local/leftovers.h"

namespace trainyard::control {
namespace {

constexpr Duration kLook = std::chrono::milliseconds(100);
// While an agent starts, of whose address the others wait to hear.
constexpr Duration kLookAtStart = std::chrono::milliseconds(10);
// At the end of the launcher: SIGTERM, this long, SIGKILL, and again a bound for the reaping.
constexpr Duration kShutdownGrace = std::chrono::seconds(3);
constexpr Duration kReapBound = std::chrono::seconds(1);
// An agent that has killed its program says how it ended, and ends.
constexpr Duration kAgentSlack = std::chrono::seconds(2);
constexpr std::size_t kMaxAgentFileBytes = 64 << 10;
constexpr std::size_t kMaxTokenBytes = 1024;

Status notFound(const JobKey& key) {
  return absl::NotFoundError(fmt::format("no job '{}' in this run directory", key.name));
}

// A word of the wrapper's command.
std::string wordFor(const TaskKey& task, std::string word) {
  constexpr std::string_view kPlaceholder = "{task}";
  for (std::size_t at = 0; (at = word.find(kPlaceholder, at)) != std::string::npos;) {
    const std::string name = toString(task);
    word.replace(at, kPlaceholder.size(), name);
    at += name.size();
  }
  return word;
}

std::string addressOf(const TaskPlaces& places, const TaskKey& task) {
  const auto found = places.addresses.find(task);
  return found == places.addresses.end() ? "127.0.0.1" : found->second;
}

}  // namespace

StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::open(LocalClusterOptions options,
                                                           const Clock& clock) {
  // Absolute: a later launcher recognises our processes by it, wherever it is started.
  options.dir = std::filesystem::absolute(options.dir).lexically_normal().string();
  const RunPaths paths{options.dir};
  TY_ASSIGN_OR_RETURN(const v1::TrainingJob job, RunRecord(paths).read());
  TY_RETURN_IF_ERROR(makeDirectories(paths.tasks()));
  endLeftoversOf(paths, clock);
  TY_ASSIGN_OR_RETURN(Pipe pipe, makePipe());
  TY_ASSIGN_OR_RETURN(WakeUp wake, WakeUp::create());
  TY_ASSIGN_OR_RETURN(WakeUp rest, WakeUp::create());
  const JobKey key{job.metadata().namespace_(), job.metadata().name()};
  return std::make_unique<LocalCluster>(Private(), std::move(options), clock, key, std::move(pipe),
                                        std::move(wake), std::move(rest));
}

LocalCluster::LocalCluster(Private, LocalClusterOptions options, const Clock& clock, JobKey key,
                           Pipe launcher_pipe, WakeUp wake, WakeUp rest)
    : options_(std::move(options)),
      clock_(clock),
      key_(std::move(key)),
      paths_{options_.dir},
      launcher_pipe_(std::move(launcher_pipe)),
      wake_(std::move(wake)),
      rest_(std::move(rest)),
      record_(paths_),
      thread_([this] { monitor(); }) {}

LocalCluster::~LocalCluster() {
  {
    const Lock lock(mutex_);
    stopping_ = true;
  }
  wake_.wake();
  thread_.join();
  const auto endAll = [this](int signal, Duration bound) {
    for (auto& [key, task] : tasks_) {
      if (task.exit) continue;
      if (signal == SIGKILL) {
        killTask(key, task);
      } else {
        (void)task.process.signal(signal);  // it may have ended this moment
      }
    }
    const TimePoint deadline = clock_.now() + bound;
    for (auto& [key, task] : tasks_) {
      if (!task.exit && task.process.wait(deadline).ok()) lookAtTask(key, task);
    }
  };
  endAll(SIGTERM, kShutdownGrace);
  endAll(SIGKILL, kReapBound);
}

Status LocalCluster::watch(std::function<void(const JobKey&)> changed) {
  {
    const Lock lock(callback_mutex_);
    changed_ = std::move(changed);
  }
  notify();
  return absl::OkStatus();
}

StatusOr<std::vector<JobKey>> LocalCluster::listJobs() {
  return std::vector<JobKey>{key_};
}

StatusOr<JobObservation> LocalCluster::observe(const JobKey& key) {
  if (key != key_) return notFound(key);
  const Lock lock(mutex_);
  JobObservation seen;
  TY_ASSIGN_OR_RETURN(seen.job, record_.read());
  seen.job.mutable_spec()->mutable_run_policy()->clear_ttl_seconds_after_finished();
  TY_ASSIGN_OR_RETURN(seen.membership, record_.readMembership());
  for (const auto& [task_key, task] : tasks_) seen.tasks.push_back(observeTask(task_key, task));
  return seen;
}

TaskObservation LocalCluster::observeTask(const TaskKey& key, const Task& task) const {
  TaskObservation seen;
  seen.key = key;
  seen.created = task.created;
  seen.terminating = task.terminating;
  seen.host = "localhost";
  if (task.agent) {
    seen.phase = TaskPhase::kRunning;
    seen.ip = task.agent->ip;
    seen.port = task.agent->task_port;
    const std::uint32_t planned = 1 + task.agent->planned_starts;
    seen.restarts = task.agent->start > planned ? task.agent->start - planned : 0;
    seen.began = task.agent->start > 0;
    seen.ready = !task.exit && !task.terminating && task.agent->ready;
  }
  if (task.exit) {
    const bool succeeded = *task.exit == ExitState{};
    seen.phase = succeeded ? TaskPhase::kSucceeded : TaskPhase::kFailed;
    seen.exit = TaskExit{task.exit->code, task.exit->signal, task.cause, task.ended_ms};
    seen.last_word = task.last_word;
  }
  return seen;
}

SpawnOptions LocalCluster::agentCommand(const TaskKey& task, std::uint32_t created) const {
  SpawnOptions spawn;
  for (const std::string& word : options_.places.wrapper) {
    spawn.argv.push_back(wordFor(task, word));
  }
  const std::vector<std::string> agent = {
      options_.agent_path,
      "--role",
      std::string(roleName(task.role)),
      "--index",
      std::to_string(task.index),
      "--created",
      std::to_string(created),
      "--job-dir",
      paths_.dir.string(),
      "--task-dir",
      paths_.task(task).string(),
      "--job",
      paths_.job().string(),
      "--membership",
      paths_.membership().string(),
      "--token",
      paths_.token().string(),
      "--launcher-fd",
      std::to_string(launcher_pipe_.read_end.get()),
      "--bind",
      addressOf(options_.places, task),
      "--log-format",
      options_.log_format == LogFormat::kJson ? "json" : "text"};
  spawn.argv.insert(spawn.argv.end(), agent.begin(), agent.end());
  spawn.output_file = paths_.taskLog(task).string();
  // Ctrl-C at the terminal reaches the launcher alone, which then stops the job in order.
  spawn.new_process_group = true;
  spawn.keep_fds = {launcher_pipe_.read_end.get()};
  return spawn;
}

// Which program the agent looks after, and how.
StatusOr<std::vector<std::string>> LocalCluster::programFlags(const v1::TrainingJob& job,
                                                              const TaskKey& task) const {
  const std::string& policy = task.role == v1::ROLE_PS ? job.spec().ps().restart_policy()
                                                       : job.spec().worker().restart_policy();
  std::vector<std::string> flags;
  if (policy == "Never") flags.push_back("--no-restart");
  if (const ExitCodeSet codes = codesOfTheJob(job.spec().run_policy()); !codes.empty())
    flags.insert(flags.end(), {"--final-exits", codes.toString()});
  if (task.role == v1::ROLE_WORKER && job.spec().worker().processes_per_pod() > 1) {
    flags.insert(flags.end(),
                 {"--processes", std::to_string(job.spec().worker().processes_per_pod())});
  }
  if (!isForeign(job)) {
    flags.insert(flags.end(), {"--runtime", options_.runtime_path});
    const int workers = job.spec().worker().replicas();
    if (task.role == v1::ROLE_WORKER && workers > 1) {
      flags.insert(flags.end(), {"--workers-here", std::to_string(workers)});
    }
  }
  if (namesProgram(job, task.role)) {
    TY_RETURN_IF_ERROR(writeCommandFile(paths_.command(task), job, task.role));
    flags.insert(flags.end(), {"--command", paths_.command(task).string()});
  }
  if (!isForeign(job)) return flags;
  flags.insert(flags.end(), {"--on-membership-change", onMembershipChange(job), "--stop-grace",
                             std::to_string(stopSeconds(job.spec().run_policy()).count())});
  if (job.spec().strategy() != "AllReduce") flags.push_back("--gpu-by-rank");
  if (const int port = portToKeep(task); port > 0) {
    flags.insert(flags.end(), {"--task-port", std::to_string(port)});
  }
  return flags;
}

// The agent of a program of the user's own gives it all of stopSeconds, as it was at its start.
Duration LocalCluster::stopGrace(const v1::TrainingJob& job) const {
  if (!isForeign(job)) return options_.stop_grace;
  return stopSeconds(job.spec().run_policy()) + kAgentSlack;
}

// A program of the user's own knows its peers from its start. One that comes back while others go
// on must be found where it was; 0: anywhere.
int LocalCluster::portToKeep(const TaskKey& task) const {
  const auto membership = record_.readMembership();
  if (!membership.ok() || !*membership) return 0;
  int port = 0;
  bool others = false;
  for (const v1::MemberTask& member : (*membership)->tasks()) {
    const TaskKey key{member.id().role(), member.id().index()};
    if (key == task) {
      port = static_cast<int>(member.port());
    } else if (const auto found = tasks_.find(key); found != tasks_.end()) {
      others = others || (found->second.created == member.created() && !found->second.exit);
    }
  }
  return others ? port : 0;
}

Status LocalCluster::createTask(const v1::TrainingJob& job, const TaskKey& task,
                                std::uint32_t created) {
  const JobKey key{job.metadata().namespace_(), job.metadata().name()};
  if (key != key_) return notFound(key);
  {
    const Lock lock(mutex_);
    if (stopping_) return absl::UnavailableError("the launcher is stopping");
    if (tasks_.contains(task)) {
      return absl::AlreadyExistsError(
          fmt::format("{} exists, created as {}", toString(task), tasks_.at(task).created));
    }
    TY_RETURN_IF_ERROR(makeDirectories(paths_.task(task)));
    std::error_code ignored;
    std::filesystem::remove(paths_.agent(task), ignored);  // of the creation before
    SpawnOptions spawn = agentCommand(task, created);
    TY_ASSIGN_OR_RETURN(const std::vector<std::string> program, programFlags(job, task));
    spawn.argv.insert(spawn.argv.end(), program.begin(), program.end());
    auto process = ChildProcess::spawn(spawn);
    TY_RETURN_IF_ERROR(annotate(process.status(), toString(task)));
    tasks_.emplace(task, Task(*std::move(process), created));
    began_ = true;
  }
  wake_.wake();
  notify();
  return absl::OkStatus();
}

Status LocalCluster::deleteTask(const v1::TrainingJob& job, const TaskKey& task,
                                std::uint32_t created) {
  {
    const Lock lock(mutex_);
    const auto found = tasks_.find(task);
    if (job.metadata().name() != key_.name || found == tasks_.end() ||
        found->second.created != created) {
      return absl::NotFoundError(
          fmt::format("no {} that was created as {}", toString(task), created));
    }
    if (found->second.exit) {
      tasks_.erase(found);
    } else if (!found->second.terminating) {
      found->second.terminating = true;
      found->second.stop_grace = stopGrace(job);
      found->second.kill_at = clock_.now() + found->second.stop_grace;
      (void)found->second.process.signal(SIGTERM);  // the monitor sees it if it ended this moment
    }
  }
  wake_.wake();
  notify();
  return absl::OkStatus();
}

Status LocalCluster::deleteJob(const v1::TrainingJob&) {
  return absl::UnimplementedError("a run directory is its user's");
}

Status LocalCluster::publish(const v1::TrainingJob& job, const v1::Membership& membership) {
  if (membership.uid() != job.metadata().uid()) {
    return absl::FailedPreconditionError("the membership is of another job");
  }
  {
    const Lock lock(mutex_);
    TY_RETURN_IF_ERROR(record_.writeMembership(membership));
  }
  notify();
  return absl::OkStatus();
}

Status LocalCluster::writeStatus(const v1::TrainingJob& job, const v1::JobStatus& status) {
  {
    const Lock lock(mutex_);
    TY_RETURN_IF_ERROR(record_.writeStatus(job.metadata().resource_version(), status));
  }
  notify();
  return absl::OkStatus();
}

Status LocalCluster::recordEvent(const v1::TrainingJob& job, std::string_view type,
                                 std::string_view reason, std::string_view message) {
  const Lock lock(mutex_);
  return record_.appendEvent(clock_.unixMillis(), type, reason, message);
}

Status LocalCluster::setSuspend(bool suspend) {
  {
    const Lock lock(mutex_);
    TY_RETURN_IF_ERROR(record_.edit(clock_, [suspend](v1::TrainingJob* job) {
      if (job->spec().run_policy().suspend() == suspend) return false;
      job->mutable_spec()->mutable_run_policy()->set_suspend(suspend);
      return true;
    }));
  }
  notify();
  return absl::OkStatus();
}

void LocalCluster::killAll() {
  const Lock lock(mutex_);
  for (auto& [key, task] : tasks_) {
    if (!task.exit) killTask(key, task);
  }
}

StatusOr<std::vector<AgentEndpoint>> LocalCluster::agents(const JobKey& key) {
  if (key != key_) return notFound(key);
  const Lock lock(mutex_);
  std::vector<AgentEndpoint> result;
  for (const auto& [task_key, task] : tasks_) {
    if (task.exit || !task.agent || task.agent->agent_port == 0) continue;
    result.push_back(
        {task_key, task.created, fmt::format("{}:{}", task.agent->ip, task.agent->agent_port)});
  }
  return result;
}

StatusOr<std::string> LocalCluster::token(const JobKey& key) {
  if (key != key_) return notFound(key);
  TY_ASSIGN_OR_RETURN(const std::string text, readFile(paths_.token(), kMaxTokenBytes));
  return std::string(trim(text));
}

bool LocalCluster::idle() {
  const Lock lock(mutex_);
  return std::all_of(tasks_.begin(), tasks_.end(),
                     [](const auto& entry) { return entry.second.exit.has_value(); });
}

void LocalCluster::notify() {
  if (began_ && idle()) rest_.wake();
  const Lock lock(callback_mutex_);
  if (changed_) changed_(key_);
}

void LocalCluster::monitor() {
  for (;;) {
    std::vector<pollfd> fds{{wake_.fd(), POLLIN, 0}};
    Duration look = kLook;
    {
      const Lock lock(mutex_);
      if (stopping_) return;
      for (const auto& [key, task] : tasks_) {
        if (task.exit) continue;
        fds.push_back({task.process.pidFd(), POLLIN, 0});
        if (!task.agent) look = kLookAtStart;
      }
    }
    pollUntil(fds, clock_.now() + look);
    wake_.clear();
    bool changed = false;
    {
      const Lock lock(mutex_);
      changed = lookAtTasks();
      changed = lookAtRecord() || changed;
    }
    if (changed) notify();
  }
}

bool LocalCluster::lookAtTasks() {
  bool changed = false;
  for (auto entry = tasks_.begin(); entry != tasks_.end();) {
    Task& task = entry->second;
    changed = lookAtTask(entry->first, task) || changed;
    entry = task.exit && task.terminating ? tasks_.erase(entry) : std::next(entry);
  }
  if (options_.reaps_orphans) {
    std::vector<pid_t> ours;
    for (const auto& [key, task] : tasks_) {
      if (!task.exit) ours.push_back(task.process.pid());
    }
    reapOrphans(ours);
  }
  return changed;
}

bool LocalCluster::lookAtTask(const TaskKey& key, Task& task) {
  if (task.exit) return false;
  bool changed = readAgent(key, task);
  const auto ended = task.process.poll();
  if (ended.ok() && *ended) {
    readAgent(key, task);
    task.exit = **ended;
    task.ended_ms = clock_.unixMillis();
    killTask(key, task);  // what it left behind
    if (task.agent) task.last_word = lastWordOf(paths_.lastReport(key), *task.agent);
    task.cause = toString(*task.exit);
    if (task.exit->code != 0) {
      std::string error = lastErrorOf(paths_.taskLog(key));
      std::error_code ignored;
      const bool foreign = std::filesystem::exists(paths_.command(key), ignored);
      if (error.empty() && foreign) error = lastOutputOf(paths_.taskLog(key));
      if (!error.empty()) task.cause = fmt::format("{}: {}", task.cause, error);
    }
    return true;
  }
  if (task.kill_at && clock_.now() >= *task.kill_at) {
    TY_WARN("{} did not stop within {:.0f} s: killed", toString(key), toSeconds(task.stop_grace));
    killTask(key, task);
    task.kill_at.reset();
  }
  return changed;
}

bool LocalCluster::readAgent(const TaskKey& key, Task& task) {
  const std::filesystem::path path = paths_.agent(key);
  auto text = readFile(path, kMaxAgentFileBytes);
  if (!text.ok() || *text == task.agent_text) return false;
  auto agent = readAgentFile(path);
  // The file of another creation cannot be there: it was removed before this one was spawned.
  if (!agent.ok() || agent->created != task.created) return false;
  task.agent_text = *std::move(text);
  task.agent = *std::move(agent);
  return true;
}

void LocalCluster::killTask(const TaskKey& key, Task& task) {
  (void)task.process.signalGroup(SIGKILL);  // nobody left is what we want
  if (task.agent) killProcessesOfTask(*task.agent, paths_.task(key));
}

bool LocalCluster::lookAtRecord() {
  const auto job = record_.read();
  if (!job.ok() || job->metadata().resource_version() == seen_record_) return false;
  seen_record_ = job->metadata().resource_version();
  return true;
}

}  // namespace trainyard::control
