#include "cli/live/monitor.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "cli/live/text.h"
#include "fmt/format.h"
#include "operator/cluster/task_keys.h"
#include "operator/progress/told_progress.h"

namespace trainyard::cli {
namespace {

using control::TaskKey;
using control::TaskObservation;
using control::TaskPhase;

constexpr double kShortestSeconds = 0.5;
// For which a restart is not told where its reason may still come.
constexpr Duration kReasonWithin = std::chrono::seconds(2);

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// A task of a foreign job that is not there: its parameter servers are ended with the job, and have
// done their part if that has succeeded.
std::string stateOfAbsent(const RunSnapshot& run, bool is_ps) {
  if (run.stopping) return "ended";
  if (!run.foreign || run.state == "Created" || run.state.empty()) return "starting";
  if (run.state == "Succeeded") return is_ps ? "succeeded" : "ended";
  return run.state == "Failed" || run.state == "Suspended" ? "ended" : "starting";
}

std::string stateOf(const TaskObservation* observed, const v1::TaskState* state, bool is_ps) {
  if (observed->phase == TaskPhase::kSucceeded) return "succeeded";
  if (observed->phase == TaskPhase::kFailed) return "failed";
  if (observed->terminating) return "stopping";
  if (!state || !state->has_report() || state->report().phase().empty()) return "starting";
  if (state->child() != "Running") return state->start() > 0 ? "restarting" : "starting";
  const std::string phase = lower(state->report().phase());
  return is_ps && phase == "training" ? "serving" : phase;
}

// " (killed by signal 9)", as far as it is known.
std::string reasonOfLoss(const RunView& view, const TaskKey& key) {
  for (const TaskObservation& task : view.observed.tasks) {
    if (task.key == key && task.exit) return " (" + task.exit->cause + ")";
  }
  const auto state = view.tasks.find(key);
  if (state == view.tasks.end()) return "";
  if (state->second.last_signal() != 0) {
    return fmt::format(" (killed by signal {})", state->second.last_signal());
  }
  const int code = state->second.last_exit_code();
  return code == 0 ? "" : fmt::format(" (exit code {})", code);
}

double trainedSeconds(const v1::PhaseSeconds& seconds) {
  return seconds.data() + seconds.compute() + seconds.push_pull();
}

}  // namespace

bool hasEnded(std::string_view state) {
  return state == "Succeeded" || state == "Failed" || state == "Suspended";
}

void RateWindow::add(TimePoint at, double value) {
  if (!samples_.empty() && value < samples_.back().value) samples_.clear();
  samples_.push_back({at, value});
  while (samples_.size() > 2 && samples_[1].at <= at - span_) samples_.pop_front();
}

std::optional<double> RateWindow::perSecond() const {
  if (samples_.size() < 2) return std::nullopt;
  const double seconds = toSeconds(samples_.back().at - samples_.front().at);
  if (seconds < kShortestSeconds) return std::nullopt;
  return (samples_.back().value - samples_.front().value) / seconds;
}

TaskRow RunMonitor::updateTask(const TaskObservation* observed, const v1::TaskState* state,
                               const TaskKey& key, TimePoint now) {
  TaskMemory& memory = memory_[key];
  TaskRow row;
  row.name = control::toString(key);
  row.is_ps = key.role == v1::ROLE_PS;
  row.state = observed != nullptr ? stateOf(observed, state, row.is_ps)
                                  : stateOfAbsent(snapshot_, row.is_ps);
  row.restarts = static_cast<std::uint32_t>(memory.restarts);
  if (state && state->has_report()) {
    const v1::RuntimeReport& report = state->report();
    tables_.add(key, report);
    double received = 0, transmitted = 0;
    for (const v1::PeerTraffic& peer : report.traffic()) {
      received += static_cast<double>(peer.received_bytes());
      transmitted += static_cast<double>(peer.transmitted_bytes());
    }
    if (report.has_wire()) {
      memory.has_wire = true;
      memory.wire_received.add(static_cast<double>(report.wire().received_bytes()));
      memory.wire_transmitted.add(static_cast<double>(report.wire().transmitted_bytes()));
    }
    if (snapshot_.foreign && report.has_wire()) {  // all that passes it
      received = static_cast<double>(report.wire().received_bytes());
      transmitted = static_cast<double>(report.wire().transmitted_bytes());
    }
    memory.received.add(received);
    memory.transmitted.add(transmitted);
    memory.examples.add(static_cast<double>(report.examples()));
    memory.seconds.add(snapshot_.foreign ? toldSeconds(report, now, memory)
                                         : trainedSeconds(report.seconds()));
    memory.received_rate.add(now, received);
    memory.transmitted_rate.add(now, transmitted);
    memory.examples_rate.add(now, static_cast<double>(report.examples()));
    if (!snapshot_.foreign) row.step = report.step();
    if (report.has_told()) showTold(report.told(), &row);
    row.message = report.message();
    if (row.is_ps || (snapshot_.foreign && report.has_wire())) {
      row.received_per_second = memory.received_rate.perSecond();
      row.transmitted_per_second = memory.transmitted_rate.perSecond();
    } else if (!snapshot_.foreign) {
      row.examples_per_second = memory.examples_rate.perSecond();
    }
  }
  row.received_bytes = static_cast<std::uint64_t>(memory.received.total());
  row.transmitted_bytes = static_cast<std::uint64_t>(memory.transmitted.total());
  if (memory.has_wire) {
    row.wire_received_bytes = static_cast<std::uint64_t>(memory.wire_received.total());
    row.wire_transmitted_bytes = static_cast<std::uint64_t>(memory.wire_transmitted.total());
  }
  return row;
}

void RunMonitor::showTold(const v1::Told& told, TaskRow* row) {
  snapshot_.told = true;
  if (told.has_step()) row->step = told.step();
  if (told.has_examples_per_second()) row->examples_per_second = told.examples_per_second();
}

// When such a program began to compute nobody knows: time and examples count from what was seen of
// it first.
double RunMonitor::toldSeconds(const v1::RuntimeReport& report, TimePoint now, TaskMemory& memory) {
  const bool computes = report.examples() > 0 && report.ready();
  if (memory.told_at) {  // up to its end, too, if that has come since
    memory.told_seconds += toSeconds(now - *memory.told_at);
  } else if (computes && memory.told_seconds == 0) {
    memory.examples.before -= static_cast<double>(report.examples());
  }
  memory.told_at = computes ? std::optional(now) : std::nullopt;
  return memory.told_seconds;
}

void RunMonitor::update(const RunView& view, TimePoint now, UnixMillis unix_ms) {
  const v1::TrainingJob& job = view.observed.job;
  snapshot_.job = job_;
  snapshot_.state = job.status().state();
  snapshot_.foreign = !job.spec().has_training();
  snapshot_.elapsed_seconds = toSeconds(now - started_);
  snapshot_.stopping = job.spec().run_policy().suspend();
  snapshot_.restarts = job.status().restarts();
  snapshot_.tasks.clear();
  std::map<TaskKey, const TaskObservation*> observed;
  for (const TaskKey& key : control::wantedTasks(job)) observed[key] = nullptr;
  for (const TaskObservation& task : view.observed.tasks) observed[task.key] = &task;
  tellRestarts(view, now, unix_ms);
  std::vector<control::ToldBy> words;
  for (const auto& [key, task] : observed) {
    const auto state = view.tasks.find(key);
    // The word of another creation says nothing of this one; the last word of one that is gone
    // stays.
    const bool fits =
        state != view.tasks.end() && (task != nullptr ? state->second.created() == task->created
                                                      : state->second.child() == "Exited");
    if (fits) words.push_back({&state->second, task == nullptr || task->exit.has_value()});
    snapshot_.tasks.push_back(updateTask(task, fits ? &state->second : nullptr, key, now));
  }
  snapshot_.tables = tables_.sums();
  const auto progress = snapshot_.foreign ? control::toldProgress(words) : view.progress;
  if (progress) updateProgress(*progress, now, unix_ms);
  // At the start of a launch the record may still say that the job rested before.
  const bool rested = told_state_.empty() && snapshot_.state == "Suspended" && !snapshot_.stopping;
  if (snapshot_.state != told_state_ && !snapshot_.state.empty() && !rested) {
    told_state_ = snapshot_.state;
    tell(unix_ms, "state", "job " + lower(snapshot_.state));
  }
}

void RunMonitor::updateProgress(const v1::JobProgress& progress, TimePoint now,
                                UnixMillis unix_ms) {
  snapshot_.step = progress.step();
  snapshot_.steps = progress.steps();
  snapshot_.waiting_for = progress.waiting_for();
  snapshot_.lost_steps = progress.lost_steps();
  if (progress.examples_per_second() > 0) {
    snapshot_.examples_per_second = progress.examples_per_second();
  } else if (snapshot_.foreign) {  // it has been silent for long
    snapshot_.examples_per_second.reset();
  }
  if (progress.has_loss()) snapshot_.loss = progress.loss();
  step_rate_.add(now, static_cast<double>(progress.step()));
  snapshot_.eta_seconds.reset();
  const auto rate = step_rate_.perSecond();
  if (rate && *rate > 0 && progress.step() < progress.steps()) {
    snapshot_.eta_seconds = static_cast<double>(progress.steps() - progress.step()) / *rate;
  }
  if (!told_resumed_ && progress.resumed_from_step() > 0) {
    tell(unix_ms, "resumed", fmt::format("resumed from step {}", progress.resumed_from_step()));
    told_resumed_ = true;
  }
  if (progress.evaluated() &&
      (snapshot_.foreign || progress.accuracy_step() != told_accuracy_step_)) {
    told_accuracy_step_ = progress.accuracy_step();
    snapshot_.accuracy = progress.accuracy();
    snapshot_.accuracy_step = progress.accuracy_step();
    // Programs of users' own may measure it at every step.
    if (snapshot_.foreign) return;
    tell(unix_ms, "evaluation",
         fmt::format("accuracy {} at step {}", formatMeasure(progress.accuracy()),
                     progress.accuracy_step()));
  }
  if (progress.has_checkpoint() && snapshot_.checkpoint_step != progress.checkpoint_step()) {
    snapshot_.checkpoint_step = progress.checkpoint_step();
    tell(unix_ms, "checkpoint", fmt::format("checkpoint at step {}", progress.checkpoint_step()));
  }
  if (progress.lost_steps() > told_lost_) {
    told_lost_ = progress.lost_steps();
    tell(unix_ms, "warning", fmt::format("steps repeated so far: {}", told_lost_));
  }
  if ((progress.unguarded_parts() > 0) != (snapshot_.unguarded_parts > 0)) {
    tell(unix_ms, "replicas",
         progress.unguarded_parts() > 0
             ? fmt::format("no second copy of {} parts of tables, until they are copied",
                           progress.unguarded_parts())
             : "all parts of tables have a second copy again");
  }
  snapshot_.unguarded_parts = progress.unguarded_parts();
  if (progress.waiting_for() != told_waiting_) {
    told_waiting_ = progress.waiting_for();
    if (!told_waiting_.empty()) tell(unix_ms, "waiting", "waiting for " + told_waiting_);
  }
}

void RunMonitor::tellRestarts(const RunView& view, TimePoint now, UnixMillis unix_ms) {
  const bool ended = hasEnded(view.observed.job.status().state());
  // The record counts every loss, also of a life that was shorter than the time between two looks.
  for (const v1::TaskRecord& record : view.observed.job.status().tasks()) {
    const auto key = control::parseTaskKey(record.task());
    if (!key) continue;
    TaskMemory& memory = memory_[*key];
    if (record.restarts() > memory.restarts) {
      if (!memory.restarted_at) memory.restarted_at = now;
      const std::string reason = reasonOfLoss(view, *key);
      // The record may know of a loss before anybody has heard from the agent how it came.
      if (reason.empty() && !ended && now < *memory.restarted_at + kReasonWithin) continue;
      tell(unix_ms, "restart", record.task() + " is restarted" + reason);
    }
    memory.restarted_at.reset();
    memory.restarts = record.restarts();
  }
}

void RunMonitor::tell(UnixMillis unix_ms, std::string kind, std::string message) {
  events_.push_back({unix_ms, std::move(kind), std::move(message)});
}

std::vector<RunEvent> RunMonitor::takeEvents() {
  return std::exchange(events_, {});
}

std::optional<double> RunMonitor::examplesPerSecond() const {
  double examples = 0, seconds = 0;
  for (const auto& [key, memory] : memory_) {
    if (key.role != v1::ROLE_WORKER) continue;
    examples += memory.examples.total();
    seconds = std::max(seconds, memory.seconds.total());
  }
  if (examples <= 0 || seconds <= 0) return std::nullopt;
  return examples / seconds;
}

}  // namespace trainyard::cli
