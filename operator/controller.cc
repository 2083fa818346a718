#include "operator/controller.h"

#include <algorithm>

#include "base/core/log.h"
#include "base/core/strings.h"
#include "fmt/format.h"
#include "operator/plan/planner.h"
#include "operator/progress/told_progress.h"
#include "operator/record/status_diff.h"

namespace trainyard::control {

namespace {

bool isTerminal(const v1::JobStatus& status) {
  return status.state() == "Succeeded" || status.state() == "Failed";
}

constexpr int kCountsAtOnce = 8;
constexpr Duration kCountsAgain = std::chrono::seconds(5);  // what was left out

// An observation that is older than our own writes.
constexpr std::string_view kAgedUrl = "trainyard.dev/aged";
Status asAged(Status status) {
  status.SetPayload(toAbsl(kAgedUrl), absl::Cord("1"));
  return status;
}
bool isAged(const Status& status) {
  return status.GetPayload(toAbsl(kAgedUrl)).has_value();
}

// What only the agents know: how often they started their programs.
void takeStarts(const JobReport& report, std::vector<TaskObservation>& tasks) {
  for (TaskObservation& task : tasks) {
    const auto found = report.tasks.find(task.key);
    if (found == report.tasks.end() || found->second.created() != task.created) continue;
    const std::uint32_t planned = 1 + found->second.planned_starts();
    const std::uint32_t starts = found->second.start();
    task.began = task.began && starts > 0;
    if (starts > planned) task.restarts = std::max(task.restarts, starts - planned);
  }
}

void takeUnreachable(const JobReport& report, std::vector<TaskObservation>& tasks) {
  for (TaskObservation& task : tasks) {
    const auto found = report.unreachable.find(task.key);
    if (found == report.unreachable.end() || found->second.created != task.created) continue;
    task.unreachable = found->second.why;
  }
}

// What a task left behind is newer than what its agent was last asked.
void takeLastWords(const std::vector<TaskObservation>& tasks, JobReport& report) {
  for (const TaskObservation& task : tasks) {
    if (!task.last_word || task.created < report.progress_created) continue;
    report.progress = task.last_word;
    report.progress_created = task.created;
  }
}

// Of programs of the user's own, which have no coordinator: nobody but them says how it gets on.
void takeTold(const std::vector<TaskObservation>& tasks, JobReport& report) {
  std::vector<ToldBy> words;
  for (const TaskObservation& task : tasks) {
    const auto found = report.tasks.find(task.key);
    if (found == report.tasks.end() || found->second.created() != task.created) continue;
    words.push_back({&found->second, task.exit.has_value()});
  }
  report.progress = toldProgress(words);
}

void logPlan(const std::string& name, const v1::JobStatus& before, const Plan& plan) {
  if (plan.status) {
    for (const std::string& line : diffStatus(before, *plan.status)) TY_DEBUG("{}: {}", name, line);
  }
  for (const DeleteTask& task : plan.deletes) {
    TY_INFO("{}: delete {} (created {}): {}", name, toString(task.key), task.created, task.reason);
  }
  for (const ReleaseTask& task : plan.releases) {
    TY_DEBUG("{}: release {} (created {})", name, toString(task.key), task.created);
  }
  if (plan.delete_job) TY_INFO("{}: delete the job: its time is over", name);
  for (const CreateTask& task : plan.creates) {
    TY_INFO("{}: create {} (created {})", name, toString(task.key), task.created);
  }
}

}  // namespace

Controller::Controller(Cluster& cluster, ProgressSource& progress, const Clock& clock,
                       ControllerOptions options)
    : cluster_(cluster),
      progress_(progress),
      clock_(clock),
      options_(std::move(options)),
      queue_(std::make_shared<WorkQueue>(clock, options_.queue)),
      recorder_(cluster, clock),
      applier_(cluster, recorder_, options_.writes_at_once),
      counts_allowed_(options_.counts_per_second, kCountsAtOnce) {}

Controller::~Controller() {
  stop();
}

std::function<void(const JobKey&)> Controller::adder() const {
  return [weak = std::weak_ptr(queue_)](const JobKey& key) {
    if (const auto queue = weak.lock()) queue->add(toString(key));
  };
}

Status Controller::takeUp() {
  progress_.watch(adder());
  TY_RETURN_IF_ERROR(annotate(cluster_.watch(adder()), "watch the jobs"));
  StatusOr<std::vector<JobKey>> keys = cluster_.listJobs();
  if (!keys.ok()) return annotate(keys.status(), "list the jobs");
  for (const JobKey& key : *keys) queue_->add(toString(key));
  return absl::OkStatus();
}

Status Controller::start() {
  TY_RETURN_IF_ERROR(takeUp());
  for (int i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { loop(); });
  return absl::OkStatus();
}

void Controller::stop() {
  queue_->shutDown();
  applier_.holdBack(true);
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  applier_.holdBack(false);
}

void Controller::loop() {
  while (const auto name = queue_->take()) work(*name);
}

int Controller::runDue(int max) {
  int reconciles = 0;
  while (reconciles < max) {
    const auto name = queue_->tryTake();
    if (!name) break;
    work(*name);
    ++reconciles;
  }
  return reconciles;
}

void Controller::work(const std::string& name) {
  const Status status = reconcileOnce(parseJobKey(name));
  if (status.ok()) {
    queue_->forget(name);
  } else if (isAged(status)) {
    // The change that is waited for adds it at once.
    queue_->addAfter(name, options_.aged_retry);
  } else if (failureClass(status) == FailureClass::kRetry) {
    // What is left out because the controller ends is nobody's trouble.
    if (!applier_.heldBack()) TY_WARN("{}: {}; trying again", name, status.ToString());
    queue_->addRateLimited(name);
  } else {
    TY_ERROR("{}: {}", name, status.ToString());
    queue_->addAfter(name, options_.permanent_retry);
  }
  queue_->done(name);
}

Status Controller::reconcileOnce(const JobKey& key) {
  ReconcileNews news{.key = key};
  const TimePoint began = clock_.now();
  if (options_.observer) options_.observer->begins(key);
  const auto finish = [&](const Status& status) {
    news.took = clock_.now() - began;
    news.status = status;
    news.permanent = !status.ok() && failureClass(status) == FailureClass::kPermanent;
    if (options_.observer) options_.observer->ended(news);
    if (status.ok()) {
      ++success_;
    } else if (absl::IsAborted(status)) {
      ++conflict_;
    } else {
      ++(failureClass(status) == FailureClass::kRetry ? retry_ : permanent_);
    }
    return status;
  };
  StatusOr<JobObservation> observed = cluster_.observe(key);
  if (absl::IsNotFound(observed.status())) {
    progress_.forget(key);
    news.gone = true;
    return finish(absl::OkStatus());
  }
  if (absl::IsAborted(observed.status())) return finish(asAged(observed.status()));
  if (!observed.ok()) return finish(annotate(observed.status(), "observe"));

  PlannerInput input;
  input.observed = *std::move(observed);
  JobReport report = progress_.newest(key);
  takeStarts(report, input.observed.tasks);
  takeUnreachable(report, input.observed.tasks);
  takeLastWords(input.observed.tasks, report);
  if (!input.observed.job.spec().has_training()) takeTold(input.observed.tasks, report);
  input.progress = std::move(report.progress);
  input.progress_created = report.progress_created;
  input.progress_due = report.progress_due;
  input.turn = turnOf(input.observed.job, options_.turns);
  input.now = clock_.now();
  input.unix_ms = clock_.unixMillis();
  Plan plan = planJob(input);
  leaveOutCounts(input.now, plan);
  logPlan(toString(key), input.observed.job.status(), plan);
  const v1::JobStatus& before = input.observed.job.status();
  news.state_before = news.state_after = before.state();
  news.restarts_before = news.restarts_after = before.restarts();
  const Applied applied = applier_.apply(input.observed, plan);
  if (applied.status_written) {
    news.state_after = plan.status->state();
    news.restarts_after = plan.status->restarts();
  }
  if (applied.status.ok()) followUp(key, input.observed, plan);
  return finish(applied.status);
}

// Where many jobs start at once and an apiserver is slow, most statuses that are written would tell
// counts. They come with what is news, or by a later look.
void Controller::leaveOutCounts(TimePoint now, Plan& plan) {
  if (!plan.status || !plan.status_can_wait) return;
  const std::lock_guard lock(mutex_);
  if (counts_allowed_.take(now)) return;
  plan.status.reset();
  const TimePoint again = now + kCountsAgain;
  plan.wake_at = std::min(plan.wake_at.value_or(again), again);
}

// Tells the tasks what is now recorded, and arranges the next look.
void Controller::followUp(const JobKey& key, const JobObservation& observed, const Plan& plan) {
  JobWish wish;
  wish.membership = plan.publish ? plan.publish : observed.membership;
  wish.stop_by = plan.stop_by;
  wish.last_word = plan.last_word;
  progress_.follow(key, observed.job.metadata().uid(), wish);

  const std::string name = toString(key);
  if (!isEmpty(plan)) {
    queue_->add(name);  // what was written is observed without waiting for anyone to tell
    return;
  }
  const bool rests = isTerminal(observed.job.status()) && observed.tasks.empty();
  Duration next = rests ? options_.resync * 10 : options_.resync;
  if (plan.wake_at) next = std::min(next, *plan.wake_at - clock_.now());
  queue_->addAfter(name, std::max(next, Duration(1)));
}

ReconcileCounts Controller::counts() const {
  return {success_, conflict_, retry_, permanent_};
}

}  // namespace trainyard::control
