#include "cli/top/top_model.h"

#include <algorithm>
#include <utility>

namespace trainyard::cli {
namespace {

// Of the newest step rate in the one that the time left is computed from.
constexpr double kSmoothing = 0.2;

void remember(History& history, std::optional<double> value) {
  if (!value) return;
  history.push_back(*value);
  if (history.size() > kHistory) history.pop_front();
}

// The median of what is known; the upper one of two.
std::optional<double> median(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void take(std::optional<double>& best, std::optional<double> value) {
  if (value && (!best || *value > *best)) best = value;
}

// How much a worker holds up its job: unready ones most, then those that compute longest.
double weightOf(const TopTask& worker) {
  if (!worker.reached || !worker.ready) return 1e30;
  return worker.busy_per_step.value_or(0);
}

void rankWorkers(std::vector<TopTask>& workers) {
  std::vector<double> busy;
  for (const TopTask& worker : workers) {
    if (worker.busy_per_step) busy.push_back(*worker.busy_per_step);
  }
  // Of two, each is measured against the quicker one.
  const std::optional<double> usual =
      busy.size() == 2 ? std::optional(std::min(busy[0], busy[1])) : median(busy);
  for (TopTask& worker : workers) {
    if (usual && *usual > 0 && worker.busy_per_step)
      worker.slowdown = *worker.busy_per_step / *usual;
  }
  std::stable_sort(workers.begin(), workers.end(),
                   [](const TopTask& a, const TopTask& b) { return weightOf(a) > weightOf(b); });
}

void rankServers(std::vector<TopTask>& servers) {
  double sum = 0;
  for (const TopTask& server : servers) sum += server.bytesPerSecond();
  for (TopTask& server : servers) {
    if (sum > 0) server.share = server.bytesPerSecond() / sum;
  }
  std::stable_sort(servers.begin(), servers.end(), [](const TopTask& a, const TopTask& b) {
    return a.bytesPerSecond() > b.bytesPerSecond();
  });
}

}  // namespace

std::optional<double> TopModel::Rate::update(std::optional<double> value, double seconds) {
  const std::optional<double> before = std::exchange(last, value);
  if (!value || !before || seconds <= 0) return std::nullopt;
  return (*value >= *before ? *value - *before : *value) / seconds;
}

// Not by Rate: of a worker that never waits the waited time is a difference of sums, which rounding
// may let fall.
std::optional<double> TopModel::HiddenShare::update(const TaskReading& reading) {
  const auto seconds_before = std::exchange(seconds, reading.all_reduce_seconds);
  const auto waited_before = std::exchange(waited, reading.all_reduce_waited);
  if (!seconds || !waited || !seconds_before || !waited_before) return std::nullopt;
  const bool anew = *seconds < *seconds_before;
  const double spent = *seconds - (anew ? 0 : *seconds_before);
  if (spent <= 0) return std::nullopt;
  return std::clamp(1 - (*waited - (anew ? 0 : *waited_before)) / spent, 0.0, 1.0);
}

TopTask TopModel::updateTask(const control::TaskKey& key, const std::string* page, double seconds) {
  TopTask task;
  task.name = toString(key);
  task.is_ps = key.role == v1::ROLE_PS;
  Memory& memory = memory_[key];
  const TaskReading reading = page == nullptr ? TaskReading() : readTaskPage(*page);
  task.reached = page != nullptr;
  task.ready = reading.ready;
  task.restarts = static_cast<int>(reading.restarts);
  task.step = reading.step;
  task.examples_per_second = memory.examples.update(reading.examples, seconds);
  const auto steps = memory.steps.update(reading.steps, seconds);
  const auto busy = memory.busy.update(reading.busy_seconds, seconds);
  const auto wait = memory.wait.update(reading.wait_seconds, seconds);
  if (steps && busy && *steps > 0) task.busy_per_step = *busy / *steps;
  if (busy && wait && *busy + *wait > 0) task.waiting = *wait / (*busy + *wait);
  task.received_per_second = memory.received.update(reading.received, seconds);
  task.transmitted_per_second = memory.transmitted.update(reading.transmitted, seconds);
  task.all_reduce_per_second = memory.all_reduce_sent.update(reading.all_reduce_sent, seconds);
  task.hidden = memory.hidden.update(reading);
  task.rows_per_second = memory.rows.update(reading.rows_pulled, seconds);
  if (reading.rows_pulled.value_or(0) > 0 && reading.hot_rows_pulled)
    task.hot_rows = *reading.hot_rows_pulled / *reading.rows_pulled;
  const bool traffic = task.received_per_second || task.transmitted_per_second;
  remember(memory.history, task.examples_per_second ? task.examples_per_second
                           : traffic                ? std::optional(task.bytesPerSecond())
                                                    : std::nullopt);
  task.history = memory.history;
  return task;
}

void TopModel::updateAllReduce() {
  view_.all_reduce = std::nullopt;
  double hidden = 0;
  int known = 0;
  for (const TopTask& worker : view_.workers) {
    if (!worker.all_reduce_per_second) continue;
    if (!view_.all_reduce) view_.all_reduce.emplace();
    view_.all_reduce->sent_per_second += *worker.all_reduce_per_second;
    if (!worker.hidden) continue;
    hidden += *worker.hidden;
    ++known;
  }
  if (!view_.all_reduce) return;
  if (known > 0) view_.all_reduce->hidden = hidden / known;
  const auto slowest = std::max_element(
      view_.workers.begin(), view_.workers.end(), [](const auto& a, const auto& b) {
        return a.busy_per_step.value_or(-1) < b.busy_per_step.value_or(-1);
      });
  if (!slowest->busy_per_step) return;
  view_.all_reduce->slowest = slowest->name;
  view_.all_reduce->slowdown = slowest->slowdown;
}

void TopModel::updateJob(double seconds, UnixMillis unix_ms, const TaskPages& pages) {
  view_.step = view_.steps = view_.loss = view_.accuracy = view_.lost_steps = std::nullopt;
  std::optional<double> checkpoint;
  double pulled = 0, hot = 0;
  for (const auto& [key, page] : pages) {
    const TaskReading reading = readTaskPage(page);
    take(view_.step, reading.step);
    take(view_.steps, reading.target_steps);
    // Of the coordinator; of programs of users' own, which may all tell one, the first.
    if (!view_.loss) view_.loss = reading.loss;
    if (!view_.accuracy) view_.accuracy = reading.accuracy;
    take(view_.lost_steps, reading.lost_steps);
    take(checkpoint, reading.checkpoint_seconds);
    pulled += reading.rows_pulled.value_or(0);
    hot += reading.hot_rows_pulled.value_or(0);
  }
  view_.hot_rows = pulled > 0 ? std::optional(hot / pulled) : std::nullopt;
  view_.rows_per_second = std::nullopt;
  for (const TopTask& server : view_.servers) {
    if (!server.rows_per_second) continue;
    view_.rows_per_second = view_.rows_per_second.value_or(0) + *server.rows_per_second;
  }
  if (view_.steps && *view_.steps <= 0) view_.steps = std::nullopt;
  view_.checkpoint_age_seconds = std::nullopt;
  if (checkpoint) view_.checkpoint_age_seconds = static_cast<double>(unix_ms) / 1000 - *checkpoint;
  view_.examples_per_second = std::nullopt;
  for (const TopTask& worker : view_.workers) {
    if (!worker.examples_per_second) continue;
    view_.examples_per_second = view_.examples_per_second.value_or(0) + *worker.examples_per_second;
  }
  remember(view_.throughput, view_.examples_per_second);
  remember(view_.losses, view_.loss);
  if (const auto rate = step_rate_.update(view_.step, seconds)) {
    steps_per_second_ = steps_per_second_ == 0
                            ? *rate
                            : steps_per_second_ + kSmoothing * (*rate - steps_per_second_);
  }
  view_.eta_seconds = std::nullopt;
  if (view_.step && view_.steps && steps_per_second_ > 0)
    view_.eta_seconds = std::max(0.0, *view_.steps - *view_.step) / steps_per_second_;
}

void TopModel::update(const std::string& state, const std::vector<control::TaskKey>& tasks,
                      const TaskPages& pages, TimePoint now, UnixMillis unix_ms) {
  const double seconds = last_ ? toSeconds(now - *last_) : 0;
  last_ = now;
  ++updates_;
  view_.name = job_;
  view_.state = state;
  view_.workers.clear();
  view_.servers.clear();
  for (const control::TaskKey& key : tasks) {
    const auto page = pages.find(key);
    TopTask task = updateTask(key, page == pages.end() ? nullptr : &page->second, seconds);
    (task.is_ps ? view_.servers : view_.workers).push_back(std::move(task));
  }
  std::erase_if(memory_, [&](const auto& entry) {
    return std::find(tasks.begin(), tasks.end(), entry.first) == tasks.end();
  });
  rankWorkers(view_.workers);
  rankServers(view_.servers);
  updateAllReduce();
  updateJob(seconds, unix_ms, pages);
}

}  // namespace trainyard::cli
