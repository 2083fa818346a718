#include "cli/top/metrics_text.h"

#include <algorithm>

#include "base/core/strings.h"
#include "base/metrics/catalogue.h"

namespace trainyard::cli {
namespace {

// Takes `name="value"` off the front of `text`; false where there is none. A value may hold escaped
// quotes.
bool takeLabel(std::string_view& text, MetricSample* sample) {
  const std::size_t equals = text.find("=\"");
  if (equals == std::string_view::npos) return false;
  std::string value;
  std::size_t at = equals + 2;
  for (; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\' && at + 1 < text.size()) {
      ++at;
      value += text[at] == 'n' ? '\n' : text[at];
    } else {
      value += text[at];
    }
  }
  if (at >= text.size()) return false;
  sample->labels[std::string(trim(text.substr(0, equals)))] = std::move(value);
  text.remove_prefix(at + 1);
  if (text.starts_with(',')) text.remove_prefix(1);
  return true;
}

std::optional<MetricSample> parseLine(std::string_view line) {
  if (line.empty() || line.front() == '#') return std::nullopt;
  MetricSample sample;
  const std::size_t end = line.find_first_of("{ ");
  if (end == std::string_view::npos) return std::nullopt;
  sample.name = std::string(line.substr(0, end));
  line.remove_prefix(end);
  if (line.front() == '{') {
    line.remove_prefix(1);
    while (!line.starts_with('}')) {
      if (!takeLabel(line, &sample)) return std::nullopt;
    }
    line.remove_prefix(1);
  }
  line = trim(line);
  const auto value = parseNumber<double>(line.substr(0, line.find(' ')));
  if (!value) return std::nullopt;
  sample.value = *value;
  return sample;
}

// The samples of a page, those of one name and the wanted labels added up.
class Sums {
 public:
  explicit Sums(std::string_view text) {
    for (MetricSample& sample : parseMetricsText(text)) {
      std::string name = sample.name;
      samples_[std::move(name)].push_back(std::move(sample));
    }
  }
  // Nothing where there is no such sample.
  std::optional<double> of(const MetricSpec& spec,
                           const std::map<std::string, std::string>& labels = {}) const {
    std::optional<double> sum;
    const auto found = samples_.find(std::string(spec.name));
    if (found == samples_.end()) return sum;
    for (const MetricSample& sample : found->second) {
      const bool wanted = std::all_of(labels.begin(), labels.end(), [&](const auto& label) {
        const auto has = sample.labels.find(label.first);
        return has != sample.labels.end() && has->second == label.second;
      });
      if (wanted) sum = sum.value_or(0) + sample.value;
    }
    return sum;
  }
  const std::vector<MetricSample>& samplesOf(const MetricSpec& spec) const {
    static const std::vector<MetricSample> kNone;
    const auto found = samples_.find(std::string(spec.name));
    return found == samples_.end() ? kNone : found->second;
  }

 private:
  std::map<std::string, std::vector<MetricSample>> samples_;
};

// Of the same traffic: payload may pass through shared memory, which the wire does not see, and the
// wire carries framing too.
std::optional<double> mostOf(std::initializer_list<std::optional<double>> values) {
  return std::max(values);  // nothing is less than any number
}

void readAllReduce(const Sums& sums, TaskReading* reading) {
  reading->all_reduce_sent = sums.of(metric("trainyard_collective_bytes_total"),
                                     {{"op", "all_reduce"}, {"direction", "transmit"}});
  reading->all_reduce_seconds =
      sums.of(metric("trainyard_collective_seconds_total"), {{"op", "all_reduce"}});
  // The ratio is that of all steps so far; with the time that it was in it gives what can be
  // subtracted from one look to the next.
  const auto hidden = sums.of(metric("trainyard_collective_overlap_ratio"));
  if (hidden && reading->all_reduce_seconds)
    reading->all_reduce_waited = *reading->all_reduce_seconds * (1 - *hidden);
}

// Shares are those of tables, of which each is pulled another number of rows.
void readTables(const Sums& sums, TaskReading* reading) {
  constexpr const MetricSpec& pulled = metric("trainyard_ps_rows_pulled_total");
  reading->rows_pulled = sums.of(pulled);
  for (const MetricSample& hot : sums.samplesOf(metric("trainyard_ps_hot_rows_ratio"))) {
    const auto table = hot.labels.find("table");
    if (table == hot.labels.end()) continue;
    const auto rows = sums.of(pulled, {{"table", table->second}});
    reading->hot_rows_pulled = reading->hot_rows_pulled.value_or(0) + hot.value * rows.value_or(0);
  }
}

}  // namespace

std::vector<MetricSample> parseMetricsText(std::string_view text) {
  std::vector<MetricSample> samples;
  for (const std::string_view line : split(text, '\n')) {
    if (auto sample = parseLine(line)) samples.push_back(*std::move(sample));
  }
  return samples;
}

TaskReading readTaskPage(std::string_view text) {
  const Sums sums(text);
  constexpr const MetricSpec& phases = metric("trainyard_worker_phase_seconds_total");
  constexpr const MetricSpec& moved = metric("trainyard_collective_bytes_total");
  TaskReading reading;
  reading.ready = sums.of(metric("trainyard_task_ready")).value_or(0) > 0;
  reading.restarts = sums.of(metric("trainyard_task_restarts_total")).value_or(0);
  reading.step = sums.of(metric("trainyard_global_step"));
  reading.target_steps = sums.of(metric("trainyard_target_steps"));
  reading.examples = sums.of(metric("trainyard_worker_examples_total"));
  reading.steps = sums.of(metric("trainyard_worker_steps_total"));
  const auto compute = sums.of(phases, {{"phase", "compute"}});
  if (compute) reading.busy_seconds = *compute + sums.of(phases, {{"phase", "data"}}).value_or(0);
  reading.wait_seconds = sums.of(phases, {{"phase", "push_pull"}});
  reading.received = mostOf({sums.of(metric("trainyard_ps_wire_receive_bytes_total")),
                             sums.of(metric("trainyard_worker_wire_receive_bytes_total")),
                             sums.of(metric("trainyard_ps_receive_bytes_total")),
                             sums.of(moved, {{"direction", "receive"}})});
  reading.transmitted = mostOf({sums.of(metric("trainyard_ps_wire_transmit_bytes_total")),
                                sums.of(metric("trainyard_worker_wire_transmit_bytes_total")),
                                sums.of(metric("trainyard_ps_transmit_bytes_total")),
                                sums.of(moved, {{"direction", "transmit"}})});
  readAllReduce(sums, &reading);
  readTables(sums, &reading);
  reading.loss = sums.of(metric("trainyard_training_loss"));
  reading.accuracy = sums.of(metric("trainyard_evaluation_accuracy"));
  reading.checkpoint_seconds =
      sums.of(metric("trainyard_checkpoint_last_success_timestamp_seconds"));
  reading.lost_steps = sums.of(metric("trainyard_lost_steps_total"));
  return reading;
}

}  // namespace trainyard::cli
