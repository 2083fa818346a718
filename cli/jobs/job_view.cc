#include "cli/jobs/job_view.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/core/rfc3339.h"
#include "base/core/strings.h"
#include "base/process/files.h"
#include "base/process/unique_fd.h"
#include "cli/run/result.h"
#include "fmt/format.h"
#include "operator/cluster/task_keys.h"
#include "operator/local/leftovers.h"
#include "operator/local/run_directory.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;
using control::RunPaths;
using control::TaskKey;

// Holds the last steps of any job.
constexpr off_t kMetricsTail = 64 << 10;
constexpr std::size_t kMaxText = 16 << 20;
// A launcher that comes or goes between two looks at its lock: look again, so often at most.
constexpr int kMaxLooks = 5;

// The end of a file; "" where it cannot be read.
std::string tailOf(const fs::path& path, off_t bytes) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const off_t size = fd.valid() ? ::lseek(fd.get(), 0, SEEK_END) : -1;
  if (size <= 0) return "";
  std::string text(static_cast<std::size_t>(std::min(size, bytes)), '\0');
  const ssize_t n = ::pread(fd.get(), text.data(), text.size(), size - std::min(size, bytes));
  text.resize(n < 0 ? 0 : static_cast<std::size_t>(n));
  return text;
}

struct Recorded {
  v1::TrainingJob job;
  std::optional<pid_t> launcher;
};

// The record together with who looks after it: a launcher seen before and after was there all the
// time.
StatusOr<Recorded> readRecorded(const RunPaths& paths) {
  Recorded recorded;
  TY_ASSIGN_OR_RETURN(recorded.launcher, FileLock::holder(paths.lock()));
  for (int look = 0; look < kMaxLooks; ++look) {
    TY_ASSIGN_OR_RETURN(recorded.job, control::RunRecord(paths).read());
    TY_ASSIGN_OR_RETURN(const std::optional<pid_t> now, FileLock::holder(paths.lock()));
    const bool same = now == recorded.launcher;
    recorded.launcher = now;
    if (same) break;
  }
  return recorded;
}

// metrics.jsonl is newer than the status, whose progress is written every 10 s. `at_rest_step`:
// only records up to the step from which the job goes on.
void addMetrics(const RunPaths& paths, std::optional<std::int64_t> at_rest_step, JobView* view) {
  RunRecords records;
  parseMetrics(tailOf(paths.metrics(), kMetricsTail), &records);
  if (at_rest_step) {
    std::erase_if(records.steps, [&](const StepRecord& r) { return r.step > *at_rest_step; });
    std::erase_if(records.evaluations,
                  [&](const EvaluationRecord& r) { return r.step > *at_rest_step; });
  }
  const double written =
      static_cast<double>(parseRfc3339(view->job.status().progress().update_time())) / 1000;
  if (!records.steps.empty() && (at_rest_step || records.steps.back().time >= written)) {
    const StepRecord& last = records.steps.back();
    view->step = last.step;
    if (last.loss) view->loss = last.loss;
    if (last.examples_per_second) view->examples_per_second = last.examples_per_second;
  }
  if (!records.evaluations.empty()) view->accuracy = records.evaluations.back().accuracy;
}

void addResult(const RunPaths& paths, JobView* view) {
  const auto text = readFile(paths.result(), kMaxText);
  if (!text.ok()) return;
  const auto result = resultFromJson(*text);
  if (!result.ok() || result->outcome != "succeeded") return;
  if (result->steps) view->step = *result->steps;
  if (result->loss) view->loss = result->loss;
  if (result->accuracy) view->accuracy = result->accuracy;
  view->examples_per_second = result->examples_per_second;
  view->skipped = result->skipped;
  view->spread = result->spread;
  view->partial = result->partial;
}

void addProgress(const RunPaths& paths, const std::vector<runtime::Manifest>& manifests,
                 JobView* view) {
  takeProgress(view);
  // Programs of users' own go on from where they see fit: known is what they told last.
  if (!view->job.spec().has_training()) {
    if (view->state == "Succeeded") addResult(paths, view);
    const bool moves = view->state == "Succeeded" || (view->launcher && view->state != "Starting");
    if (!moves) view->examples_per_second.reset();
    return;
  }
  if (!manifests.empty()) view->checkpoint_step = manifests.front().step;
  if (view->state == "Succeeded") {
    addMetrics(paths, std::nullopt, view);
    return addResult(paths, view);
  }
  if (view->launcher && view->state != "Starting") return addMetrics(paths, std::nullopt, view);
  const std::int64_t step = view->checkpoint_step.value_or(0);
  addMetrics(paths, step, view);
  view->step = step;
  view->examples_per_second.reset();
}

std::string nameOf(const fs::path& dir) {
  std::error_code ignored;
  const fs::path path = fs::absolute(dir, ignored).lexically_normal();
  return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

StatusOr<JobView> readView(const RunPaths& paths, const std::vector<runtime::Manifest>& manifests) {
  TY_ASSIGN_OR_RETURN(Recorded recorded, readRecorded(paths));
  JobView view;
  view.name = nameOf(paths.dir);
  view.dir = paths.dir;
  view.job = std::move(recorded.job);
  view.launcher = recorded.launcher;
  view.state = shownState(view.job, view.launcher.has_value());
  addProgress(paths, manifests, &view);
  return view;
}

std::string childState(const control::AgentFile& agent) {
  if (agent.ready) return "Ready";
  if (agent.child != "Exited") return agent.child.empty() ? "-" : agent.child;
  if (agent.last_signal != 0) return fmt::format("Exited (signal {})", agent.last_signal);
  return fmt::format("Exited (code {})", agent.last_exit_code);
}

TaskView readTask(const RunPaths& paths, const TaskKey& key, const v1::JobStatus& status) {
  TaskView task = recordedTask(key, status);
  const auto agent = control::readAgentFile(paths.agent(key));
  if (!agent.ok()) return task;
  const fs::path task_dir = paths.task(key);
  const bool lives = control::isProcessOfTask(agent->pid, task_dir);
  task.created = agent->created;
  task.starts = agent->start;
  task.state = lives || agent->child == "Exited" ? childState(*agent) : "Gone";
  if (lives) {
    task.agent = agent->pid;
    task.process = agent->child_pid;
    task.metrics_port = agent->metrics_port;
  }
  return task;
}

std::vector<TaskView> readTasks(const RunPaths& paths, const v1::TrainingJob& job) {
  // The agents were started with the absolute path.
  std::error_code ignored;
  const RunPaths absolute{fs::absolute(paths.dir, ignored).lexically_normal()};
  std::vector<TaskView> tasks;
  for (const TaskKey& key : control::wantedTasks(job))
    tasks.push_back(readTask(absolute, key, job.status()));
  return tasks;
}

bool hasCondition(const v1::JobStatus& status, std::string_view type, std::string_view value) {
  return std::any_of(
      status.conditions().begin(), status.conditions().end(),
      [&](const v1::Condition& c) { return c.type() == type && c.status() == value; });
}

}  // namespace

TaskView recordedTask(const TaskKey& key, const v1::JobStatus& status) {
  TaskView task;
  task.name = control::toString(key);
  task.state = "-";
  for (const v1::TaskRecord& record : status.tasks()) {
    if (record.task() != task.name) continue;
    task.restarts = record.restarts();
    task.created = static_cast<std::uint32_t>(record.created());
  }
  return task;
}

std::string shownState(const v1::TrainingJob& recorded, bool has_launcher) {
  if (recorded.metadata().has_deletion_timestamp()) return "Terminating";
  const v1::JobStatus& status = recorded.status();
  const std::string& state = status.state();
  if (state == "Succeeded" || state == "Failed") return state;
  const bool wish = recorded.spec().run_policy().suspend();
  // Without any state it was never taken up.
  const bool rests = state == "Suspended" || state.empty();
  if (!has_launcher) return rests && wish ? "Suspended" : "Interrupted";
  if (wish || hasCondition(status, "Suspended", "Unknown")) return "Suspending";
  return state == "Running" || state == "Restarting" ? state : "Starting";
}

std::string failureOf(const v1::TrainingJob& recorded) {
  for (const v1::Condition& condition : recorded.status().conditions()) {
    if (condition.type() == "Failed" && condition.status() == "True") {
      return condition.reason() + ": " + condition.message();
    }
  }
  return "";
}

void takeProgress(JobView* view) {
  const v1::JobStatus& status = view->job.status();
  view->step = status.progress().step();
  view->steps = status.progress().steps();
  if (view->steps == 0) view->steps = view->job.spec().training().steps();
  view->loss = parseNumber<double>(status.progress().loss());
  view->accuracy = parseNumber<double>(status.progress().accuracy());
  view->examples_per_second = parseNumber<double>(status.progress().examples_per_second());
  // Of programs that tell no examples.
  const bool told = view->examples_per_second.value_or(0) > 0;
  if (!view->job.spec().has_training() && !told) view->examples_per_second.reset();
}

StatusOr<JobView> readJob(const fs::path& dir) {
  const RunPaths paths{dir};
  return readView(paths, runtime::listManifests(paths.checkpoints().string(), nullptr));
}

StatusOr<JobDetails> readDetails(const fs::path& dir) {
  const RunPaths paths{dir};
  JobDetails details;
  details.checkpoints = runtime::listManifests(paths.checkpoints().string(), &details.problems);
  TY_ASSIGN_OR_RETURN(details.view, readView(paths, details.checkpoints));
  details.tasks = readTasks(paths, details.view.job);
  RunRecords records;
  parseEvents(readFile(paths.events(), kMaxText).value_or(""), &records);
  details.events = std::move(records.events);
  return details;
}

}  // namespace trainyard::cli
