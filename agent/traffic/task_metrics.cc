#include "agent/traffic/task_metrics.h"

#include <algorithm>

#include "agent/traffic/merged_report.h"
#include "base/http/metrics.h"

namespace trainyard::agent {
namespace {

using prometheus::MetricFamily;

constexpr const char* kPhases[] = {"data", "compute", "push_pull", "evaluate"};

void raise(double& held, double seen) {
  held = std::max(held, seen);
}

void raise(RuntimeCounters::Histogram& held, const v1::Buckets& seen) {
  held.counts.resize(std::max(held.counts.size(), static_cast<std::size_t>(seen.counts_size())));
  for (int i = 0; i < seen.counts_size(); ++i) {
    std::uint64_t& count = held.counts[static_cast<std::size_t>(i)];
    count = std::max(count, seen.counts(i));
  }
  raise(held.sum, seen.sum());
}

void addTo(RuntimeCounters::Histogram& sum, const RuntimeCounters::Histogram& more) {
  sum.counts.resize(std::max(sum.counts.size(), more.counts.size()));
  for (std::size_t i = 0; i < more.counts.size(); ++i) sum.counts[i] += more.counts[i];
  sum.sum += more.sum;
}

void addTo(RuntimeCounters& sum, const RuntimeCounters& more) {
  sum.examples += more.examples;
  sum.steps += more.steps;
  sum.requests += more.requests;
  sum.discarded += more.discarded;
  sum.lost_steps += more.lost_steps;
  addTo(sum.step_times, more.step_times);
  addTo(sum.staleness, more.staleness);
  addTo(sum.request_times, more.request_times);
  addTo(sum.checkpoint_times, more.checkpoint_times);
  addTo(sum.epoch_change_times, more.epoch_change_times);
  for (const auto& [op, work] : more.collective) {
    RuntimeCounters::Collective& to = sum.collective[op];
    to.sent_bytes += work.sent_bytes;
    to.received_bytes += work.received_bytes;
    to.seconds += work.seconds;
    to.waited_seconds += work.waited_seconds;
  }
  for (const auto& [name, work] : more.tables) {
    RuntimeCounters::Table& to = sum.tables[name];
    to.created += work.created;
    to.refused += work.refused;
    to.evicted += work.evicted;
    to.pulled += work.pulled;
    to.pushed += work.pushed;
    to.occurrences += work.occurrences;
    to.distinct += work.distinct;
  }
  for (const auto& [phase, seconds] : more.phase_seconds) sum.phase_seconds[phase] += seconds;
  for (const auto& [peer, traffic] : more.traffic) {
    sum.traffic[peer].received_bytes += traffic.received_bytes;
    sum.traffic[peer].transmitted_bytes += traffic.transmitted_bytes;
  }
}

// Builds families that all carry the task's labels.
class FamilyList {
 public:
  explicit FamilyList(const TaskIdentity& self)
      : labels_({{"trainyard_job", self.job.name},
                 {"role", roleName(self.id.role())},
                 {"index", std::to_string(self.id.index())}}) {}

  void open(const MetricSpec& spec) { families_.push_back(makeFamily(spec)); }
  void put(double value) { addMetric(families_.back(), labels_, value); }
  void put(const MetricLabels& more, double value) {
    MetricLabels labels = labels_;
    labels.insert(labels.end(), more.begin(), more.end());
    addMetric(families_.back(), labels, value);
  }
  void put(const std::string& label, const std::string& text, double value) {
    put({{label, text}}, value);
  }
  void one(const MetricSpec& spec, double value) {
    open(spec);
    put(value);
  }
  void histogram(const MetricSpec& spec, const RuntimeCounters::Histogram& seen) {
    open(spec);
    addHistogram(families_.back(), labels_, spec, seen.counts, seen.sum);
  }
  std::vector<MetricFamily> take() { return std::move(families_); }

 private:
  const MetricLabels labels_;
  std::vector<MetricFamily> families_;
};

void addTraffic(FamilyList& list, const MetricSpec& received, const MetricSpec& transmitted,
                const RuntimeCounters& total) {
  if (total.traffic.empty()) return;
  list.open(received);
  for (const auto& [peer, traffic] : total.traffic) list.put("peer", peer, traffic.received_bytes);
  list.open(transmitted);
  for (const auto& [peer, traffic] : total.traffic)
    list.put("peer", peer, traffic.transmitted_bytes);
}

void addWire(FamilyList& list, bool ps, const WireReading& wire) {
  list.one(ps ? metric("trainyard_ps_wire_receive_bytes_total")
              : metric("trainyard_worker_wire_receive_bytes_total"),
           static_cast<double>(wire.total.received));
  list.one(ps ? metric("trainyard_ps_wire_transmit_bytes_total")
              : metric("trainyard_worker_wire_transmit_bytes_total"),
           static_cast<double>(wire.total.transmitted));
  if (wire.peers.empty()) return;
  list.open(ps ? metric("trainyard_ps_peer_wire_receive_bytes_total")
               : metric("trainyard_worker_peer_wire_receive_bytes_total"));
  for (const auto& [peer, bytes] : wire.peers)
    list.put("peer", peer, static_cast<double>(bytes.received));
  list.open(ps ? metric("trainyard_ps_peer_wire_transmit_bytes_total")
               : metric("trainyard_worker_peer_wire_transmit_bytes_total"));
  for (const auto& [peer, bytes] : wire.peers)
    list.put("peer", peer, static_cast<double>(bytes.transmitted));
}

void addCollective(FamilyList& list, const RuntimeCounters& total) {
  if (total.collective.empty()) return;
  list.open(metric("trainyard_collective_bytes_total"));
  for (const auto& [op, work] : total.collective) {
    list.put({{"op", op}, {"direction", "transmit"}}, work.sent_bytes);
    list.put({{"op", op}, {"direction", "receive"}}, work.received_bytes);
  }
  list.open(metric("trainyard_collective_seconds_total"));
  for (const auto& [op, work] : total.collective) list.put("op", op, work.seconds);
  const auto reduced = total.collective.find("all_reduce");
  if (reduced == total.collective.end() || reduced->second.seconds <= 0) return;
  list.one(metric("trainyard_collective_overlap_ratio"),
           std::clamp(1 - reduced->second.waited_seconds / reduced->second.seconds, 0.0, 1.0));
}

void addTables(FamilyList& list, const MetricSpec& spec, const RuntimeCounters& total,
               double RuntimeCounters::Table::*value) {
  list.open(spec);
  for (const auto& [name, work] : total.tables) list.put("table", name, work.*value);
}

void addWorkerTables(FamilyList& list, const RuntimeCounters& total) {
  using Table = RuntimeCounters::Table;
  if (total.tables.empty()) return;
  addTables(list, metric("trainyard_worker_row_ids_total"), total, &Table::occurrences);
  addTables(list, metric("trainyard_worker_distinct_row_ids_total"), total, &Table::distinct);
}

void addPsTables(FamilyList& list, const RuntimeCounters& total, const v1::RuntimeReport& report) {
  using Table = RuntimeCounters::Table;
  if (total.tables.empty()) return;
  addTables(list, metric("trainyard_ps_rows_created_total"), total, &Table::created);
  addTables(list, metric("trainyard_ps_rows_refused_total"), total, &Table::refused);
  addTables(list, metric("trainyard_ps_rows_evicted_total"), total, &Table::evicted);
  addTables(list, metric("trainyard_ps_rows_pulled_total"), total, &Table::pulled);
  addTables(list, metric("trainyard_ps_rows_pushed_total"), total, &Table::pushed);
  list.open(metric("trainyard_ps_rows"));
  for (const v1::TableWork& work : report.tables())
    list.put("table", work.table(), static_cast<double>(work.rows()));
  list.open(metric("trainyard_ps_rows_counted"));
  for (const v1::TableWork& work : report.tables())
    list.put("table", work.table(), static_cast<double>(work.counted()));
  list.open(metric("trainyard_ps_rows_bytes"));
  for (const v1::TableWork& work : report.tables())
    list.put("table", work.table(), static_cast<double>(work.bytes()));
  list.open(metric("trainyard_ps_hot_rows_ratio"));
  for (const v1::TableWork& work : report.tables()) list.put("table", work.table(), work.hot());
}

void addWorker(FamilyList& list, const RuntimeCounters& total, const v1::RuntimeReport& report) {
  list.one(metric("trainyard_worker_examples_total"), total.examples);
  list.one(metric("trainyard_worker_steps_total"), total.steps);
  list.one(metric("trainyard_worker_discarded_gradients_total"), total.discarded);
  list.histogram(metric("trainyard_worker_step_duration_seconds"), total.step_times);
  list.histogram(metric("trainyard_worker_staleness_steps"), total.staleness);
  list.open(metric("trainyard_worker_phase_seconds_total"));
  for (const auto& [phase, seconds] : total.phase_seconds) list.put("phase", phase, seconds);
  list.one(metric("trainyard_worker_last_step_seconds"), report.step_seconds());
  addTraffic(list, metric("trainyard_worker_receive_bytes_total"),
             metric("trainyard_worker_transmit_bytes_total"), total);
  addCollective(list, total);
  addWorkerTables(list, total);
}

void addPs(FamilyList& list, const RuntimeCounters& total, const v1::RuntimeReport& report) {
  list.one(metric("trainyard_ps_requests_total"), total.requests);
  list.histogram(metric("trainyard_ps_request_duration_seconds"), total.request_times);
  list.one(metric("trainyard_ps_parameters_bytes"), static_cast<double>(report.parameter_bytes()));
  addTraffic(list, metric("trainyard_ps_receive_bytes_total"),
             metric("trainyard_ps_transmit_bytes_total"), total);
  addPsTables(list, total, report);
}

void addJob(FamilyList& list, const RuntimeCounters& total, const v1::JobProgress& job) {
  if (job.has_loss()) list.one(metric("trainyard_training_loss"), job.loss());
  if (job.accuracy_step() > 0) list.one(metric("trainyard_evaluation_accuracy"), job.accuracy());
  list.one(metric("trainyard_lost_steps_total"), total.lost_steps);
  list.histogram(metric("trainyard_checkpoint_duration_seconds"), total.checkpoint_times);
  list.histogram(metric("trainyard_epoch_change_seconds"), total.epoch_change_times);
  if (!job.has_checkpoint()) return;
  list.one(metric("trainyard_checkpoint_last_step"), static_cast<double>(job.checkpoint_step()));
  list.one(metric("trainyard_checkpoint_last_success_timestamp_seconds"),
           static_cast<double>(job.checkpoint_unix_ms()) / 1000.0);
}

// A member that the program leaves out is nowhere: zero would be a lie. What it has counted stays
// when it starts anew.
void addTold(FamilyList& list, bool ps, const RuntimeCounters& total, const v1::Told& told) {
  if (told.has_step()) list.one(metric("trainyard_global_step"), static_cast<double>(told.step()));
  if (told.has_steps()) {
    list.one(metric("trainyard_target_steps"), static_cast<double>(told.steps()));
  }
  if (told.has_loss()) list.one(metric("trainyard_training_loss"), told.loss());
  if (told.has_accuracy()) list.one(metric("trainyard_evaluation_accuracy"), told.accuracy());
  if (told.has_epoch()) list.one(metric("trainyard_data_epoch"), told.epoch());
  if (ps) return;
  if (total.examples > 0) list.one(metric("trainyard_worker_examples_total"), total.examples);
  if (told.has_step() || total.steps > 0) {
    list.one(metric("trainyard_worker_steps_total"), total.steps);
  }
}

}  // namespace

bool CounterTotals::enter(std::uint32_t start) {
  if (start > start_) {
    addTo(earlier_, current_);
    current_ = {};
    start_ = start;
  }
  return start == start_;
}

void CounterTotals::update(std::uint32_t start, const v1::Measurements& measured) {
  if (!enter(start)) return;
  raise(current_.discarded, static_cast<double>(measured.discarded()));
  raise(current_.step_times, measured.step_times());
  raise(current_.staleness, measured.staleness());
  raise(current_.request_times, measured.request_times());
  raise(current_.checkpoint_times, measured.checkpoint_times());
  raise(current_.epoch_change_times, measured.epoch_change_times());
  for (const v1::CollectiveWork& work : measured.collective()) {
    RuntimeCounters::Collective& held = current_.collective[work.op()];
    raise(held.sent_bytes, static_cast<double>(work.sent_bytes()));
    raise(held.received_bytes, static_cast<double>(work.received_bytes()));
    raise(held.seconds, work.seconds());
    raise(held.waited_seconds, work.waited_seconds());
  }
}

void CounterTotals::update(std::uint32_t start, const v1::RuntimeReport& report) {
  if (!enter(start)) return;
  raise(current_.examples, static_cast<double>(report.examples()));
  raise(current_.steps, static_cast<double>(report.completed_steps()));
  raise(current_.requests, static_cast<double>(report.requests()));
  raise(current_.lost_steps, static_cast<double>(report.job().lost_steps()));
  raise(current_.phase_seconds["data"], report.seconds().data());
  raise(current_.phase_seconds["compute"], report.seconds().compute());
  raise(current_.phase_seconds["push_pull"], report.seconds().push_pull());
  raise(current_.phase_seconds["evaluate"], report.seconds().evaluate());
  for (const v1::PeerTraffic& peer : report.traffic()) {
    RuntimeCounters::Traffic& traffic = current_.traffic[taskName(peer.peer())];
    raise(traffic.received_bytes, static_cast<double>(peer.received_bytes()));
    raise(traffic.transmitted_bytes, static_cast<double>(peer.transmitted_bytes()));
  }
  for (const v1::TableWork& work : report.tables()) {
    RuntimeCounters::Table& held = current_.tables[work.table()];
    raise(held.created, static_cast<double>(work.created()));
    raise(held.refused, static_cast<double>(work.refused()));
    raise(held.evicted, static_cast<double>(work.evicted()));
    raise(held.pulled, static_cast<double>(work.pulled()));
    raise(held.pushed, static_cast<double>(work.pushed()));
    raise(held.occurrences, static_cast<double>(work.occurrences()));
    raise(held.distinct, static_cast<double>(work.distinct()));
  }
}

RuntimeCounters CounterTotals::total() const {
  RuntimeCounters sum;
  for (const char* phase : kPhases) sum.phase_seconds[phase] = 0;  // counters are born at zero
  addTo(sum, earlier_);
  addTo(sum, current_);
  return sum;
}

TaskMetrics::Process& TaskMetrics::processOf(const v1::TaskId& id) {
  return processes_[agent::processOf(self_, id).value_or(0)];
}

RuntimeCounters TaskMetrics::total() const {
  RuntimeCounters sum;
  for (const Process& process : processes_) addTo(sum, process.totals.total());
  return sum;
}

v1::RuntimeReport TaskMetrics::newest() const {
  std::vector<v1::RuntimeReport> reports;
  for (const Process& process : processes_) reports.push_back(process.newest);
  return mergedReport(self_, reports);
}

void TaskMetrics::onReport(const v1::RuntimeReport& report) {
  std::lock_guard lock(mutex_);
  Process& process = processOf(report.id());
  process.totals.update(report.incarnation().start(), report);
  process.newest = report;
}

void TaskMetrics::onMeasurements(const v1::Measurements& measured) {
  std::lock_guard lock(mutex_);
  Process& process = processOf(measured.id());
  process.totals.update(measured.incarnation().start(), measured);
  process.checkpoint_bytes = measured.checkpoint_bytes();
}

void TaskMetrics::onRefusedTelling() {
  std::lock_guard lock(mutex_);
  ++refused_tellings_;
}

void TaskMetrics::onChild(std::uint32_t starts, bool running) {
  std::lock_guard lock(mutex_);
  const bool started_anew = starts != starts_;
  starts_ = starts;
  running_ = running;
  // What the program of the user's own told in its former life is no more.
  if (self_.foreign && started_anew) processes_.front().newest.Clear();
  if (running) return;
  for (Process& process : processes_) process.newest.set_ready(false);
}

void TaskMetrics::onMembership(std::int64_t revision) {
  std::lock_guard lock(mutex_);
  revision_ = revision;
}

std::vector<MetricFamily> TaskMetrics::Collect() const {
  const std::optional<WireReading> wire_now = wire();
  std::lock_guard lock(mutex_);
  const RuntimeCounters total = this->total();
  const v1::RuntimeReport newest = this->newest();
  const bool ps = self_.id.role() == v1::ROLE_PS;
  FamilyList list(self_);
  list.one(metric("trainyard_task_ready"), running_ && (self_.foreign || newest.ready()) ? 1 : 0);
  list.one(metric("trainyard_task_restarts_total"), starts_ > 1 ? starts_ - 1.0 : 0.0);
  list.one(metric("trainyard_task_membership_revision"), static_cast<double>(revision_));
  if (wire_now) addWire(list, ps, *wire_now);
  if (self_.foreign) {  // of its work nothing is known but what it tells
    list.one(metric("trainyard_task_refused_tellings_total"),
             static_cast<double>(refused_tellings_));
    addTold(list, ps, total, newest.told());
    return list.take();
  }
  list.one(metric("trainyard_global_step"), static_cast<double>(newest.step()));
  list.one(metric("trainyard_target_steps"), static_cast<double>(newest.steps()));
  list.one(metric("trainyard_epoch"), static_cast<double>(newest.epoch()));
  if (ps) {
    addPs(list, total, newest);
  } else {
    addWorker(list, total, newest);
  }
  if (newest.has_job()) addJob(list, total, newest.job());
  if (ps && newest.has_job())
    list.one(metric("trainyard_ps_unguarded_parts"), newest.job().unguarded_parts());
  if (const std::int64_t bytes = processes_.front().checkpoint_bytes; newest.has_job() && bytes > 0)
    list.one(metric("trainyard_checkpoint_bytes"), static_cast<double>(bytes));
  return list.take();
}

}  // namespace trainyard::agent
