#include "agent/traffic/task_metrics.h"

#include "gmock/gmock.h"

namespace trainyard::agent {
namespace {

v1::RuntimeReport makeReport(std::uint32_t start, std::uint64_t examples, std::uint64_t received) {
  v1::RuntimeReport report;
  report.mutable_incarnation()->set_start(start);
  report.set_examples(examples);
  report.set_completed_steps(examples / 10);
  report.mutable_seconds()->set_compute(static_cast<double>(examples) / 100);
  v1::PeerTraffic* traffic = report.add_traffic();
  traffic->mutable_peer()->set_role(v1::ROLE_PS);
  traffic->mutable_peer()->set_index(1);
  traffic->set_received_bytes(received);
  traffic->set_transmitted_bytes(2 * received);
  return report;
}

TEST(CounterTotals, AddUpTheLivesOfTheProgram) {
  CounterTotals totals;
  totals.update(1, makeReport(1, 100, 10));
  totals.update(1, makeReport(1, 200, 20));
  EXPECT_EQ(totals.total().examples, 200);
  totals.update(2, makeReport(2, 50, 5));
  EXPECT_EQ(totals.total().examples, 250);
  EXPECT_EQ(totals.total().steps, 25);
  EXPECT_EQ(totals.total().traffic.at("ps-1").received_bytes, 25);
  EXPECT_EQ(totals.total().traffic.at("ps-1").transmitted_bytes, 50);
  EXPECT_DOUBLE_EQ(totals.total().phase_seconds.at("compute"), 2.5);
}

TEST(CounterTotals, AddUpBucketsAndNeverTakeThemBack) {
  CounterTotals totals;
  const auto report = [](std::uint32_t start, std::vector<std::uint64_t> counts, double sum) {
    v1::Measurements one;
    one.mutable_incarnation()->set_start(start);
    one.mutable_step_times()->mutable_counts()->Add(counts.begin(), counts.end());
    one.mutable_step_times()->set_sum(sum);
    return one;
  };
  totals.update(1, report(1, {3, 1, 0}, 0.5));
  totals.update(1, report(1, {2, 1, 0}, 0.25));  // late
  totals.update(2, report(2, {}, 0));
  totals.update(2, report(2, {1, 0, 2}, 4));
  EXPECT_THAT(totals.total().step_times.counts, testing::ElementsAre(4, 1, 2));
  EXPECT_DOUBLE_EQ(totals.total().step_times.sum, 4.5);
}

TEST(CounterTotals, NeverFall) {
  CounterTotals totals;
  totals.update(2, makeReport(2, 200, 20));
  totals.update(2, makeReport(2, 150, 15));
  totals.update(1, makeReport(1, 900, 90));
  EXPECT_EQ(totals.total().examples, 200);
  EXPECT_EQ(totals.total().traffic.at("ps-1").received_bytes, 20);
}

TEST(CounterTotals, CountALifeThatNeverReportedAsNothing) {
  CounterTotals totals;
  totals.update(1, makeReport(1, 100, 10));
  totals.update(3, makeReport(3, 0, 0));
  EXPECT_EQ(totals.total().examples, 100);
}

TaskIdentity makeSelf(v1::Role role) {
  TaskIdentity self{.job = {.name = "demo", .ns = "", .uid = "u"}, .id = {}, .created = 1};
  self.id.set_role(role);
  self.id.set_index(3);
  return self;
}

// The value of a family's metric that has the given extra label; nothing when there is none.
std::optional<double> valueOf(const TaskMetrics& metrics, const std::string& family,
                              const std::string& label = "") {
  for (const prometheus::MetricFamily& entry : metrics.Collect()) {
    if (entry.name != family) continue;
    for (const prometheus::ClientMetric& metric : entry.metric) {
      if (!label.empty() && metric.label.back().value != label) continue;
      return entry.type == prometheus::MetricType::Counter ? metric.counter.value
                                                           : metric.gauge.value;
    }
  }
  return std::nullopt;
}

TEST(TaskMetrics, AreBornAtZeroWithTheTasksLabels) {
  const TaskMetrics metrics(makeSelf(v1::ROLE_WORKER));
  EXPECT_EQ(valueOf(metrics, "trainyard_worker_examples_total"), 0);
  EXPECT_EQ(valueOf(metrics, "trainyard_worker_phase_seconds_total", "push_pull"), 0);
  EXPECT_EQ(valueOf(metrics, "trainyard_task_restarts_total"), 0);
  EXPECT_EQ(valueOf(metrics, "trainyard_task_ready"), 0);
  EXPECT_EQ(valueOf(metrics, "trainyard_training_loss"), std::nullopt);
  EXPECT_EQ(valueOf(metrics, "trainyard_ps_requests_total"), std::nullopt);
  for (const prometheus::MetricFamily& family : metrics.Collect()) {
    for (const prometheus::ClientMetric& metric : family.metric) {
      ASSERT_GE(metric.label.size(), 3u);
      EXPECT_EQ(metric.label[0], (prometheus::ClientMetric::Label{"trainyard_job", "demo"}));
      EXPECT_EQ(metric.label[1], (prometheus::ClientMetric::Label{"role", "worker"}));
      EXPECT_EQ(metric.label[2], (prometheus::ClientMetric::Label{"index", "3"}));
    }
  }
}

TEST(TaskMetrics, ShowTheNewestReport) {
  TaskMetrics metrics(makeSelf(v1::ROLE_PS));
  metrics.onChild(2, true);
  v1::RuntimeReport report;
  report.mutable_incarnation()->set_start(2);
  report.set_ready(true);
  report.set_step(40);
  report.set_epoch(3);
  report.set_requests(17);
  report.mutable_job()->set_has_loss(true);
  report.mutable_job()->set_loss(0.5);
  v1::PeerTraffic* traffic = report.add_traffic();
  traffic->mutable_peer()->set_role(v1::ROLE_WORKER);
  traffic->set_received_bytes(1000);
  metrics.onReport(report);
  EXPECT_EQ(valueOf(metrics, "trainyard_global_step"), 40);
  EXPECT_EQ(valueOf(metrics, "trainyard_epoch"), 3);
  EXPECT_EQ(valueOf(metrics, "trainyard_ps_requests_total"), 17);
  EXPECT_EQ(valueOf(metrics, "trainyard_ps_receive_bytes_total", "worker-0"), 1000);
  EXPECT_EQ(valueOf(metrics, "trainyard_training_loss"), 0.5);
  EXPECT_EQ(valueOf(metrics, "trainyard_task_restarts_total"), 1);
  EXPECT_EQ(valueOf(metrics, "trainyard_task_ready"), 1);
  metrics.onChild(2, false);
  EXPECT_EQ(valueOf(metrics, "trainyard_task_ready"), 0);
  metrics.onChild(3, true);
  EXPECT_EQ(valueOf(metrics, "trainyard_task_ready"), 0) << "until the new life says so";
}

TEST(TaskMetrics, TellWhatAllReduceMovesAndHowMuchOfItIsHidden) {
  TaskMetrics metrics(makeSelf(v1::ROLE_WORKER));
  EXPECT_EQ(valueOf(metrics, "trainyard_collective_seconds_total"), std::nullopt);
  v1::Measurements measured;
  measured.mutable_incarnation()->set_start(1);
  v1::CollectiveWork* work = measured.add_collective();
  work->set_op("all_reduce");
  EXPECT_EQ(valueOf(metrics, "trainyard_collective_overlap_ratio"), std::nullopt);
  work->set_sent_bytes(700);
  work->set_received_bytes(900);
  work->set_seconds(4);
  work->set_waited_seconds(1);
  metrics.onMeasurements(measured);
  EXPECT_EQ(valueOf(metrics, "trainyard_collective_bytes_total", "transmit"), 700);
  EXPECT_EQ(valueOf(metrics, "trainyard_collective_bytes_total", "receive"), 900);
  EXPECT_EQ(valueOf(metrics, "trainyard_collective_seconds_total", "all_reduce"), 4);
  EXPECT_EQ(valueOf(metrics, "trainyard_collective_overlap_ratio"), 0.75);
  measured.mutable_incarnation()->set_start(2);
  metrics.onMeasurements(measured);
  EXPECT_EQ(valueOf(metrics, "trainyard_collective_seconds_total", "all_reduce"), 8)
      << "of both lives";
}

TEST(TaskMetrics, AddUpWhatTheProcessesOfATaskCount) {
  TaskIdentity self = makeSelf(v1::ROLE_WORKER);
  self.processes = 2;
  TaskMetrics metrics(self);
  metrics.onChild(1, true);
  v1::RuntimeReport report = makeReport(1, 100, 10);
  report.set_ready(true);
  report.set_step(7);
  *report.mutable_id() = processId(self, 0);
  report.set_step_seconds(0.5);
  metrics.onReport(report);
  EXPECT_EQ(valueOf(metrics, "trainyard_worker_examples_total"), 100);
  EXPECT_EQ(valueOf(metrics, "trainyard_task_ready"), 0) << "not before both are";
  *report.mutable_id() = processId(self, 1);
  report.set_examples(40);
  report.set_step_seconds(0.25);
  metrics.onReport(report);
  metrics.onReport(report);
  EXPECT_EQ(valueOf(metrics, "trainyard_worker_examples_total"), 140);
  EXPECT_EQ(valueOf(metrics, "trainyard_worker_last_step_seconds"), 0.5);
  EXPECT_EQ(valueOf(metrics, "trainyard_global_step"), 7);
  EXPECT_EQ(valueOf(metrics, "trainyard_task_ready"), 1);
}

v1::TableWork& addTable(v1::RuntimeReport& report, const std::string& name) {
  v1::TableWork& work = *report.add_tables();
  work.set_table(name);
  return work;
}

// Counters go on over the lives of the program; what is held is the present one's.
TEST(TaskMetrics, TellTheRowsOfEachTable) {
  TaskMetrics metrics(makeSelf(v1::ROLE_PS));
  EXPECT_EQ(valueOf(metrics, "trainyard_ps_rows"), std::nullopt);
  for (const std::uint32_t start : {1U, 2U}) {
    v1::RuntimeReport report;
    report.mutable_incarnation()->set_start(start);
    addTable(report, "user").set_pulled(100);
    v1::TableWork& work = addTable(report, "item");
    work.set_rows(40 * start);
    work.set_bytes(6000);
    work.set_created(40);
    work.set_refused(2);
    work.set_evicted(5);
    work.set_counted(70);
    work.set_pulled(900);
    work.set_pushed(800);
    work.set_hot(0.25);
    metrics.onReport(report);
  }
  EXPECT_EQ(valueOf(metrics, "trainyard_ps_rows", "item"), 80);
  EXPECT_EQ(valueOf(metrics, "trainyard_ps_rows", "user"), 0);
  EXPECT_EQ(valueOf(metrics, "trainyard_ps_rows_bytes", "item"), 6000);
  EXPECT_EQ(valueOf(metrics, "trainyard_ps_rows_created_total", "item"), 80);
  EXPECT_EQ(valueOf(metrics, "trainyard_ps_rows_refused_total", "item"), 4);
  EXPECT_EQ(valueOf(metrics, "trainyard_ps_rows_evicted_total", "item"), 10);
  EXPECT_EQ(valueOf(metrics, "trainyard_ps_rows_counted", "item"), 70);
  EXPECT_EQ(valueOf(metrics, "trainyard_ps_rows_pulled_total", "item"), 1800);
  EXPECT_EQ(valueOf(metrics, "trainyard_ps_rows_pulled_total", "user"), 200);
  EXPECT_EQ(valueOf(metrics, "trainyard_ps_rows_pushed_total", "item"), 1600);
  EXPECT_EQ(valueOf(metrics, "trainyard_ps_hot_rows_ratio", "item"), 0.25);
  EXPECT_EQ(valueOf(metrics, "trainyard_worker_row_ids_total"), std::nullopt);
}

TEST(TaskMetrics, AddUpTheIdsThatTheProcessesOfATaskLookUp) {
  TaskIdentity self = makeSelf(v1::ROLE_WORKER);
  self.processes = 2;
  TaskMetrics metrics(self);
  for (const std::uint32_t process : {0U, 1U}) {
    v1::RuntimeReport report = makeReport(1, 100, 10);
    *report.mutable_id() = processId(self, process);
    v1::TableWork& work = addTable(report, "user");
    work.set_occurrences(1000);
    work.set_distinct(300 + process);
    metrics.onReport(report);
  }
  EXPECT_EQ(valueOf(metrics, "trainyard_worker_row_ids_total", "user"), 2000);
  EXPECT_EQ(valueOf(metrics, "trainyard_worker_distinct_row_ids_total", "user"), 601);
  EXPECT_EQ(valueOf(metrics, "trainyard_ps_rows"), std::nullopt);
}

TEST(TaskMetrics, ShowHistogramsWithTheCataloguesBounds) {
  TaskMetrics metrics(makeSelf(v1::ROLE_WORKER));
  v1::Measurements measured;
  measured.mutable_incarnation()->set_start(1);
  for (const std::uint64_t count : {0, 0, 5, 2}) measured.mutable_step_times()->add_counts(count);
  measured.mutable_step_times()->set_sum(0.03);
  metrics.onMeasurements(measured);
  bool found = false;
  for (const prometheus::MetricFamily& family : metrics.Collect()) {
    if (family.name != "trainyard_worker_step_duration_seconds") continue;
    found = true;
    const auto& histogram = family.metric.at(0).histogram;
    EXPECT_EQ(histogram.sample_count, 7u);
    EXPECT_DOUBLE_EQ(histogram.sample_sum, 0.03);
    EXPECT_EQ(histogram.bucket.at(2).cumulative_count, 5u);
    EXPECT_DOUBLE_EQ(histogram.bucket.at(2).upper_bound, 0.005);
    EXPECT_EQ(histogram.bucket.at(3).cumulative_count, 7u);
  }
  EXPECT_TRUE(found);
}

TEST(TaskMetrics, ShowWhatIsOnTheWire) {
  const TaskMetrics uncounted(makeSelf(v1::ROLE_PS));
  EXPECT_EQ(valueOf(uncounted, "trainyard_ps_wire_receive_bytes_total"), std::nullopt);
  const TaskMetrics metrics(makeSelf(v1::ROLE_PS), [] {
    return WireReading{.total = {1100, 1200}, .peers = {{"worker-1", {600, 700}}}};
  });
  EXPECT_EQ(valueOf(metrics, "trainyard_ps_wire_receive_bytes_total"), 1100);
  EXPECT_EQ(valueOf(metrics, "trainyard_ps_wire_transmit_bytes_total"), 1200);
  EXPECT_EQ(valueOf(metrics, "trainyard_ps_peer_wire_receive_bytes_total", "worker-1"), 600);
  EXPECT_EQ(valueOf(metrics, "trainyard_ps_peer_wire_transmit_bytes_total", "worker-1"), 700);
}

}  // namespace
}  // namespace trainyard::agent
