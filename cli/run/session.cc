#include "cli/run/session.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/core/rfc3339.h"
#include "base/process/files.h"
#include "base/process/poll.h"
#include "base/process/unique_fd.h"
#include "cli/live/plain.h"
#include "cli/report/report.h"
#include "cli/run/scrape_list.h"
#include "fmt/format.h"
#include "operator/cluster/stop_seconds.h"
#include "operator/job/template.h"
#include "operator/local/last_report.h"
#include "runtime/checkpoint/checkpoint.h"

namespace trainyard::cli {
namespace {

using control::TaskKey;

// The controller deletes the tasks of a job that has not stopped in its time; then this ends them.
constexpr Duration kInterruptSlack = std::chrono::seconds(10);
// Tasks of a job that has ended leave by themselves; the controller deletes those that do not.
constexpr Duration kEndBound = std::chrono::seconds(30);
// A record that cannot be found for this long will not come back.
constexpr Duration kGoneBound = std::chrono::seconds(3);
constexpr Duration kSampleEvery = std::chrono::seconds(1);

control::GrpcProgressOptions progressOptions() {
  return {.interval = std::chrono::milliseconds(500), .timeout = std::chrono::milliseconds(500)};
}

std::string failureOf(const v1::JobStatus& status) {
  for (const v1::Condition& condition : status.conditions()) {
    if (condition.type() == "Failed" && condition.status() == "True") {
      return condition.reason() + ": " + condition.message();
    }
  }
  return "the job did not end";
}

void appendLine(const std::filesystem::path& path, const std::string& line) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644));
  const std::string text = line + "\n";
  if (!fd.valid() || ::write(fd.get(), text.data(), text.size()) < 0) {
    TY_DEBUG("{}: a sample is lost", path.string());
  }
}

}  // namespace

Session::Session(SessionOptions options, OpenedRun run, const Clock& clock, SignalWaiter& signals,
                 Display& display)
    : options_(std::move(options)),
      run_(std::move(run)),
      clock_(clock),
      signals_(signals),
      display_(display),
      foreign_(control::isForeign(run_.job)),
      key_{run_.job.metadata().namespace_(), run_.job.metadata().name()},
      started_(clock.now()),
      started_unix_ms_(clock.unixMillis()),
      edits_(run_.paths, clock),
      monitor_(key_.name, started_),
      next_sample_(started_) {
  if (!options_.show_output) return;
  output_.emplace(LogChoice{run_.paths.dir, "", std::nullopt},
                  [this](const std::string& task, const std::string& line) {
                    if (task == "launcher" || !timeOf(line).empty()) return;  // not the program's
                    display_.event({clock_.unixMillis(), "output", withPrefix(task, line)});
                  });
}

Session::~Session() {
  stopAll();
}

Status Session::start() {
  control::LocalClusterOptions options;
  options.dir = run_.paths.dir.string();
  options.agent_path = options_.agent_path;
  options.runtime_path = options_.runtime_path;
  options.log_format = options_.log_format;
  options.places = options_.places;
  options.reaps_orphans = options_.reaps_orphans;
  TY_ASSIGN_OR_RETURN(cluster_, control::LocalCluster::open(options, clock_));
  progress_ = std::make_unique<control::GrpcProgress>(*cluster_, progressOptions());
  controller_ = std::make_unique<control::Controller>(*cluster_, *progress_, clock_,
                                                      control::ControllerOptions());
  TY_RETURN_IF_ERROR(controller_->start());
  progress_->start();
  return absl::OkStatus();
}

void Session::waitForEnd() {
  while (!step()) {
    waitForNews();
    if (signals_.next()) takeSignal();
  }
}

// Until the next frame, a signal, or a change while no task runs any more, so that the job's end is
// seen at once.
void Session::waitForNews() {
  pollfd fds[] = {{signals_.fd(), POLLIN, 0}, {cluster_->restFd(), POLLIN, 0}};
  pollUntil(fds, clock_.now() + display_.interval());
  cluster_->clearRest();
}

bool Session::step() {
  look();
  const TimePoint now = clock_.now();
  for (const RunEvent& event : monitor_.takeEvents()) display_.event(event);
  showOutput(/*last=*/false);
  display_.show(monitor_.snapshot(), now, clock_.unixMillis());
  sampleTraffic(now);
  return isOver();
}

void Session::look() {
  auto observed = cluster_->observe(key_);
  if (absl::IsNotFound(observed.status())) {
    if (!gone_since_) gone_since_ = clock_.now();
  } else {
    gone_since_.reset();
  }
  // What cannot be read now can be read at the next look.
  if (observed.ok()) view_.observed = *std::move(observed);
  for (const control::TaskObservation& task : view_.observed.tasks) lives_[task.key] = task.created;
  if (!gone_since_ && !deleted()) {
    for (const RunEvent& event : edits_.look()) display_.event(event);
    listMetrics();
  }
  tellWish();
  control::JobReport report = progress_->newest(key_);
  view_.tasks = std::move(report.tasks);
  if (report.progress) view_.progress = std::move(report.progress);
  monitor_.update(view_, clock_.now(), clock_.unixMillis());
}

bool Session::deleted() const {
  return view_.observed.job.metadata().has_deletion_timestamp();
}

void Session::tellWish() {
  const bool suspend = view_.observed.job.spec().run_policy().suspend();
  if (interrupted() || suspend == told_suspend_) return;
  told_suspend_ = suspend;
  display_.event({clock_.unixMillis(), "state",
                  !suspend   ? "resumed from elsewhere"
                  : foreign_ ? "suspended from elsewhere: stopping"
                             : "suspended from elsewhere: stopping with a checkpoint"});
}

// Programs of the user's own have what the job gives them once they are asked to end.
Duration Session::endBound() const {
  const v1::RunPolicy& policy = view_.observed.job.spec().run_policy();
  return foreign_ ? kEndBound + control::stopSeconds(policy) : kEndBound;
}

bool Session::isOver() {
  const TimePoint now = clock_.now();
  if (killed_) return true;
  if (interrupt_deadline_ && now >= *interrupt_deadline_) return true;
  if (gone_since_ && now >= *gone_since_ + kGoneBound) return true;
  // Before the controller's first look the record still says how the last launch ended.
  const v1::TrainingJob& job = view_.observed.job;
  const v1::JobStatus& status = job.status();
  bool ended = hasEnded(status.state()) && status.has_observed_generation();
  // Resumed while it was stopping: it goes on right here.
  if (status.state() == "Suspended" && !job.spec().run_policy().suspend()) ended = false;
  ended = ended || deleted();
  if (!ended) {
    end_deadline_.reset();
    return false;
  }
  if (!end_deadline_) end_deadline_ = now + endBound();
  return cluster_->idle() || now >= *end_deadline_;
}

void Session::takeSignal() {
  const TimePoint now = clock_.now();
  if (interrupt_deadline_) {
    display_.event({clock_.unixMillis(), "state", "killed"});
    killed_ = true;
    controller_->stop();  // it would create the tasks again
    cluster_->killAll();
    return;
  }
  const std::chrono::seconds limit = control::stopSeconds(view_.observed.job.spec().run_policy());
  interrupt_deadline_ = now + limit + kInterruptSlack;
  display_.event({clock_.unixMillis(), "state",
                  fmt::format("stopping{}, {} s at most; Ctrl-C again kills everything at once",
                              foreign_ ? "" : " with a checkpoint", limit.count())});
  if (const Status status = cluster_->setSuspend(true); !status.ok()) {
    TY_WARN("cannot record the wish to stop: {}", std::string(status.message()));
    interrupt_deadline_ = now;
  }
}

void Session::showOutput(bool last) {
  if (output_) output_->read(last);
}

void Session::listMetrics() {
  std::vector<ScrapeTarget> targets;
  for (const control::TaskObservation& task : view_.observed.tasks) {
    if (task.phase != control::TaskPhase::kRunning) continue;
    const auto agent = control::readAgentFile(run_.paths.agent(task.key));
    if (!agent.ok() || agent->created != task.created || agent->metrics_port == 0) continue;
    targets.push_back({toString(task.key), agent->ip, agent->metrics_port});
  }
  std::string text = scrapeList(key_.ns, targets);
  if (text == listed_metrics_) return;
  const Status written = replaceFile(run_.paths.dir / kScrapeList, text);
  if (written.ok()) {
    listed_metrics_ = std::move(text);
  } else {  // the next look tries again
    TY_DEBUG("{}", std::string(written.message()));
  }
}

void Session::sampleTraffic(TimePoint now) {
  if (now < next_sample_ || (!view_.progress && !foreign_)) return;
  next_sample_ = now + kSampleEvery;
  appendLine(run_.paths.traffic(), renderTraffic(monitor_.snapshot(), clock_.unixMillis()));
}

// The poller may have missed what the tasks reported in their last moments; the agents wrote it
// down.
void Session::takeLastWords() {
  for (const auto& [key, created] : lives_) {
    auto report = control::readLastReport(run_.paths.lastReport(key));
    if (!report.ok()) continue;
    v1::TaskState& state = view_.tasks[key];
    const auto life = [](const v1::Incarnation& i) { return std::pair(i.created(), i.start()); };
    if (life(report->incarnation()) < life(state.report().incarnation())) continue;
    if (report->incarnation().created() != created) continue;
    state.set_created(created);
    state.set_child("Exited");
    if (report->has_job()) view_.progress = report->job();
    *state.mutable_report() = *std::move(report);
  }
  monitor_.update(view_, clock_.now(), clock_.unixMillis());
  for (const RunEvent& event : monitor_.takeEvents()) display_.event(event);
}

void Session::stopAll() {
  if (controller_) controller_->stop();
  if (cluster_) {
    if (interrupted()) cluster_->killAll();
    (void)cluster_->watch({});  // cannot fail: it only forgets the callback
  }
  if (progress_) progress_->stop();
  controller_.reset();
  progress_.reset();
  cluster_.reset();
}

// What counts is where the job goes on, or has ended: the newest checkpoint. The last word of its
// coordinator may have been missed, and the number of its steps may have changed on the way.
bool Session::takeStepsFromDisk(RunResult* result) const {
  if (foreign_) return true;
  std::vector<std::string> problems;
  const auto manifests = runtime::listManifests(run_.paths.checkpoints().string(), &problems);
  if (!manifests.empty()) result->steps = manifests.front().step;
  return !manifests.empty();
}

RunResult Session::makeResult() const {
  const RunSnapshot& snapshot = monitor_.snapshot();
  const v1::JobStatus& status = view_.observed.job.status();
  const RunRecords records = readRecords(run_.paths.dir);
  RunResult result;
  result.dir = options_.shown_dir;
  if (snapshot.hasSteps()) result.steps = snapshot.step;
  result.seconds = toSeconds(clock_.now() - started_);
  result.examples_per_second = trainingRate(records, static_cast<double>(started_unix_ms_) / 1000);
  if (!result.examples_per_second) result.examples_per_second = monitor_.examplesPerSecond();
  result.loss = snapshot.loss;
  result.accuracy = snapshot.accuracy;
  if (view_.progress) {
    const v1::UpdateSpec& update = view_.observed.job.spec().training().update();
    const bool asynchronous = update.mode() == "Async" || update.mode() == "BoundedDelay";
    if (update.backup_workers() > 0) result.skipped = view_.progress->skipped();
    if (asynchronous) result.spread = view_.progress->spread();
    if (asynchronous) result.partial = view_.progress->partial();
  }
  if (!records.steps.empty() && records.steps.back().step >= result.steps) {
    const StepRecord& last = records.steps.back();
    result.steps = last.step;
    if (last.loss) result.loss = last.loss;
  }
  if (!records.evaluations.empty()) {
    result.accuracy = records.evaluations.back().accuracy;
    result.auc = records.evaluations.back().auc;
    result.calibration = records.evaluations.back().calibration;
  }
  if (gone_since_) {
    result.outcome = "failed";
    result.reason = fmt::format("{} is gone", options_.shown_dir);
  } else if (deleted()) {
    result.outcome = "deleted";
  } else if (status.state() == "Succeeded") {
    result.outcome = "succeeded";
    if (!takeStepsFromDisk(&result)) {
      const v1::Training& training = view_.observed.job.spec().training();
      result.steps = std::max({result.steps.value_or(0), snapshot.steps, training.steps()});
    }
  } else if (interrupted() || status.state() == "Suspended") {
    result.outcome = interrupted() ? "interrupted" : "suspended";
    (void)takeStepsFromDisk(&result);  // none: it had not begun
  } else {
    result.outcome = "failed";
    result.reason = failureOf(status);
  }
  return result;
}

void Session::writeFiles(const RunResult& result) {
  nlohmann::ordered_json environment = describeMachine();
  if (!foreign_) environment["runtime"] = computesWith(run_.paths.dir);
  ReportInput report;
  report.job = key_.name;
  report.result = result;
  report.records = readRecords(run_.paths.dir);
  report.simulated = run_.job.spec().training().model().simulated_step_seconds() > 0;
  if (auto plan = makePlanReport(run_.job); plan.ok()) report.plan = *std::move(plan);
  report.facts = reportFacts(run_.job, run_.notes, environment);
  report.finished = formatRfc3339(clock_.unixMillis());
  const std::pair<std::filesystem::path, std::string> files[] = {
      {run_.paths.environment(), environment.dump(2) + "\n"},
      {run_.paths.report(), renderReport(report)},
      {run_.paths.dir / kScrapeList, scrapeList(key_.ns, {})},
      {run_.paths.result(), resultJson(result).dump(2) + "\n"}};
  for (const auto& [path, text] : files) {
    if (const Status status = writeFileAtomically(path, text); !status.ok()) {
      TY_WARN("{}", std::string(status.message()));
    }
  }
}

// The record of a job that ended by itself: its tasks may have ended since the controller looked.
void Session::settle() {
  const std::string& state = view_.observed.job.status().state();
  if (!controller_ || gone_since_ || deleted() || (state != "Succeeded" && state != "Failed"))
    return;
  controller_->stop();
  if (const Status status = controller_->reconcileOnce(key_); !status.ok()) {
    TY_WARN("the last look at the job: {}", status.ToString());
  }
  look();
}

RunResult Session::finish() {
  settle();
  takeLastWords();
  next_sample_ = clock_.now();  // the last word on traffic too
  sampleTraffic(next_sample_);
  stopAll();
  showOutput(/*last=*/true);
  display_.finish(monitor_.snapshot(), clock_.unixMillis());
  const RunResult result = makeResult();
  if (!gone_since_ && !deleted()) writeFiles(result);
  return result;
}

}  // namespace trainyard::cli
