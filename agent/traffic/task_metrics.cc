#include "agent/traffic/task_metrics.h"

#include <algorithm>

#include "base/http/metrics.h"

namespace trainyard::agent {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr const char* kPhases[] = {"data", "compute", "push_pull", "evaluate"};

void raise(double& held, double seen) {
  held = std::max(held, seen);
}

void addTo(RuntimeCounters& sum, const RuntimeCounters& more) {
  sum.examples += more.examples;
  sum.steps += more.steps;
  sum.requests += more.requests;
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

  void open(const std::string& name, const std::string& help, MetricType type) {
    families_.push_back(makeFamily(name, help, type));
  }
  void put(double value) { addMetric(families_.back(), labels_, value); }
  void put(const std::string& label, const std::string& text, double value) {
    MetricLabels labels = labels_;
    labels.emplace_back(label, text);
    addMetric(families_.back(), labels, value);
  }
  void counter(const std::string& name, const std::string& help, double value) {
    open(name, help, MetricType::Counter);
    put(value);
  }
  void gauge(const std::string& name, const std::string& help, double value) {
    open(name, help, MetricType::Gauge);
    put(value);
  }
  std::vector<MetricFamily> take() { return std::move(families_); }

 private:
  const MetricLabels labels_;
  std::vector<MetricFamily> families_;
};

void addTraffic(FamilyList& list, const std::string& role, const RuntimeCounters& total) {
  list.open("trainyard_" + role + "_receive_bytes_total",
            "Payload bytes received from a peer by this task.", MetricType::Counter);
  for (const auto& [peer, traffic] : total.traffic) list.put("peer", peer, traffic.received_bytes);
  list.open("trainyard_" + role + "_transmit_bytes_total",
            "Payload bytes sent to a peer by this task.", MetricType::Counter);
  for (const auto& [peer, traffic] : total.traffic)
    list.put("peer", peer, traffic.transmitted_bytes);
}

void addWire(FamilyList& list, const std::string& role, const WireBytes& wire) {
  list.counter("trainyard_" + role + "_wire_receive_bytes_total",
               "TCP stream bytes received at the task's port, framing included, headers of TCP and "
               "IP not; counted by the kernel.",
               static_cast<double>(wire.received));
  list.counter("trainyard_" + role + "_wire_transmit_bytes_total",
               "TCP stream bytes sent from the task's port and acknowledged, framing included, "
               "headers of TCP and IP not; counted by the kernel.",
               static_cast<double>(wire.transmitted));
}

void addWorker(FamilyList& list, const RuntimeCounters& total, const v1::RuntimeReport& report) {
  list.counter("trainyard_worker_examples_total", "Samples of completed steps.", total.examples);
  list.counter("trainyard_worker_steps_total", "Completed steps.", total.steps);
  list.open("trainyard_worker_phase_seconds_total", "Time spent by phase of the step.",
            MetricType::Counter);
  for (const auto& [phase, seconds] : total.phase_seconds) list.put("phase", phase, seconds);
  list.gauge("trainyard_worker_last_step_seconds", "Duration of the last step.",
             report.step_seconds());
}

void addPs(FamilyList& list, const RuntimeCounters& total, const v1::RuntimeReport& report) {
  list.counter("trainyard_ps_requests_total", "Push-pull requests answered.", total.requests);
  list.gauge("trainyard_ps_parameters_bytes", "Bytes of weights held.",
             static_cast<double>(report.parameter_bytes()));
}

void addJob(FamilyList& list, const v1::JobProgress& job) {
  if (job.has_loss()) {
    list.gauge("trainyard_training_loss", "Mean loss of the newest complete step.", job.loss());
  }
  if (job.accuracy_step() > 0) {
    list.gauge("trainyard_evaluation_accuracy", "Accuracy of the last evaluation.", job.accuracy());
  }
  if (job.has_checkpoint()) {
    list.gauge("trainyard_checkpoint_last_step", "Step of the newest committed checkpoint.",
               static_cast<double>(job.checkpoint_step()));
    list.gauge("trainyard_checkpoint_last_success_timestamp_seconds",
               "When the newest checkpoint was committed, seconds since 1970.",
               static_cast<double>(job.checkpoint_unix_ms()) / 1000.0);
  }
}

}  // namespace

void CounterTotals::update(std::uint32_t start, const v1::RuntimeReport& report) {
  if (start < start_) return;
  if (start > start_) {
    addTo(earlier_, current_);
    current_ = {};
    start_ = start;
  }
  raise(current_.examples, static_cast<double>(report.examples()));
  raise(current_.steps, static_cast<double>(report.completed_steps()));
  raise(current_.requests, static_cast<double>(report.requests()));
  raise(current_.phase_seconds["data"], report.seconds().data());
  raise(current_.phase_seconds["compute"], report.seconds().compute());
  raise(current_.phase_seconds["push_pull"], report.seconds().push_pull());
  raise(current_.phase_seconds["evaluate"], report.seconds().evaluate());
  for (const v1::PeerTraffic& peer : report.traffic()) {
    RuntimeCounters::Traffic& traffic = current_.traffic[taskName(peer.peer())];
    raise(traffic.received_bytes, static_cast<double>(peer.received_bytes()));
    raise(traffic.transmitted_bytes, static_cast<double>(peer.transmitted_bytes()));
  }
}

RuntimeCounters CounterTotals::total() const {
  RuntimeCounters sum;
  for (const char* phase : kPhases) sum.phase_seconds[phase] = 0;  // counters are born at zero
  addTo(sum, earlier_);
  addTo(sum, current_);
  return sum;
}

void TaskMetrics::onReport(const v1::RuntimeReport& report) {
  std::lock_guard lock(mutex_);
  totals_.update(report.incarnation().start(), report);
  newest_ = report;
}

void TaskMetrics::onChild(std::uint32_t starts, bool running) {
  std::lock_guard lock(mutex_);
  starts_ = starts;
  running_ = running;
  if (!running) newest_.set_ready(false);
}

void TaskMetrics::onMembership(std::int64_t revision) {
  std::lock_guard lock(mutex_);
  revision_ = revision;
}

std::vector<MetricFamily> TaskMetrics::Collect() const {
  const std::optional<WireBytes> wire_now = wire();
  std::lock_guard lock(mutex_);
  const RuntimeCounters total = totals_.total();
  FamilyList list(self_);
  list.gauge("trainyard_task_ready", "1 while the task's program reports that it is ready.",
             running_ && (self_.foreign || newest_.ready()) ? 1 : 0);
  list.counter("trainyard_task_restarts_total", "Restarts of the program in place.",
               starts_ > 1 ? starts_ - 1.0 : 0.0);
  list.gauge("trainyard_task_membership_revision", "Membership that the agent goes by.",
             static_cast<double>(revision_));
  list.gauge("trainyard_global_step", "Newest complete global step.",
             static_cast<double>(newest_.step()));
  list.gauge("trainyard_epoch", "Epoch that the program takes part in.",
             static_cast<double>(newest_.epoch()));
  if (self_.id.role() == v1::ROLE_WORKER) {
    addWorker(list, total, newest_);
  } else {
    addPs(list, total, newest_);
  }
  addTraffic(list, roleName(self_.id.role()), total);
  if (wire_now) addWire(list, roleName(self_.id.role()), *wire_now);
  if (newest_.has_job()) addJob(list, newest_.job());
  return list.take();
}

}  // namespace trainyard::agent
