#include "operator/work_meter.h"

#include <optional>
#include <string>

#include "gtest/gtest.h"
#include "operator/job_metrics.h"

namespace trainyard::control {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;

const MetricFamily* find(const std::vector<MetricFamily>& families, const std::string& name) {
  for (const MetricFamily& family : families) {
    if (family.name == name) return &family;
  }
  return nullptr;
}

// The value of the series of `name` that has the label's value; of any, where `label` is empty.
std::optional<double> valueOf(const std::vector<MetricFamily>& families, const std::string& name,
                              const std::string& label = "") {
  const MetricFamily* family = find(families, name);
  if (family == nullptr) return std::nullopt;
  for (const ClientMetric& metric : family->metric) {
    bool matches = label.empty();
    for (const auto& one : metric.label) matches = matches || one.value == label;
    if (!matches) continue;
    switch (family->type) {
      case prometheus::MetricType::Counter:
        return metric.counter.value;
      case prometheus::MetricType::Histogram:
        return static_cast<double>(metric.histogram.sample_count);
      default:
        return metric.gauge.value;
    }
  }
  return std::nullopt;
}

class WorkMeterTest : public testing::Test {
 protected:
  void reconcile(const std::string& name, Status status, const std::string& before,
                 const std::string& after, std::int64_t restarts = 0) {
    ReconcileNews news{.key = {"lab", name}, .took = std::chrono::milliseconds(3)};
    news.permanent = !status.ok() && failureClass(status) == FailureClass::kPermanent;
    news.status = std::move(status);
    news.state_before = before;
    news.state_after = after;
    news.restarts_after = restarts;
    meter_.begins(news.key);
    meter_.ended(news);
  }
  void gone(const std::string& name) {
    const JobKey key{"lab", name};
    meter_.begins(key);
    meter_.ended({.key = key, .gone = true});
  }

  FakeClock clock_;
  WorkMeter meter_{clock_};
};

TEST_F(WorkMeterTest, CountsReconcilesByResultFromZero) {
  for (const char* result : {"success", "error", "requeue", "requeue_after"})
    EXPECT_EQ(valueOf(meter_.collect(1), "controller_runtime_reconcile_total", result), 0)
        << result;
  reconcile("a", absl::OkStatus(), "", "Created");
  reconcile("a", absl::UnavailableError("x"), "Created", "Created");
  reconcile("a", absl::InvalidArgumentError("x"), "Created", "Created");
  reconcile("a", absl::AbortedError("x"), "Created", "Created");
  const auto families = meter_.collect(3);
  const std::string total = "controller_runtime_reconcile_total";
  EXPECT_EQ(valueOf(families, total, "success"), 1);
  EXPECT_EQ(valueOf(families, total, "error"), 2);
  EXPECT_EQ(valueOf(families, total, "requeue"), 1);
  EXPECT_EQ(valueOf(families, "controller_runtime_reconcile_errors_total"), 2);
  EXPECT_EQ(valueOf(families, "controller_runtime_terminal_reconcile_errors_total"), 1);
  EXPECT_EQ(valueOf(families, "controller_runtime_reconcile_time_seconds"), 4);
  EXPECT_EQ(valueOf(families, "controller_runtime_max_concurrent_reconciles"), 3);
  EXPECT_EQ(valueOf(families, "controller_runtime_active_workers"), 0);
}

TEST_F(WorkMeterTest, AJobIsCountedOnceInEachState) {
  EXPECT_EQ(find(meter_.collect(1), "trainyard_jobs_created_total"), nullptr);
  meter_.begins({"lab", "a"});
  EXPECT_EQ(valueOf(meter_.collect(1), "trainyard_jobs_succeeded_total", "lab"), 0);
  reconcile("a", absl::OkStatus(), "", "Created");
  reconcile("a", absl::OkStatus(), "Created", "Running", 2);
  reconcile("a", absl::OkStatus(), "Running", "Succeeded");
  reconcile("a", absl::OkStatus(), "Succeeded", "Succeeded");
  reconcile("old", absl::OkStatus(), "Running", "Failed");  // taken over from another operator
  gone("a");
  gone("a");
  gone("never-seen");
  const auto families = meter_.collect(1);
  EXPECT_EQ(valueOf(families, "trainyard_jobs_created_total", "lab"), 1);
  EXPECT_EQ(valueOf(families, "trainyard_jobs_succeeded_total", "lab"), 1);
  EXPECT_EQ(valueOf(families, "trainyard_jobs_failed_total", "lab"), 1);
  EXPECT_EQ(valueOf(families, "trainyard_jobs_deleted_total", "lab"), 1);
  EXPECT_EQ(valueOf(families, "trainyard_job_restarts_total", "lab"), 2);
}

TEST_F(WorkMeterTest, MeasuresTheQueue) {
  WorkQueue queue(clock_, {.observer = &meter_});
  queue.add("a");
  queue.add("a");
  clock_.advance(std::chrono::seconds(2));
  ASSERT_EQ(queue.tryTake(), "a");
  queue.add("a");  // in line again when its work is done
  clock_.advance(std::chrono::seconds(5));
  auto families = meter_.collect(1);
  EXPECT_EQ(valueOf(families, "workqueue_queue_duration_seconds"), 1);
  EXPECT_EQ(valueOf(families, "workqueue_work_duration_seconds"), 0);
  EXPECT_EQ(valueOf(families, "workqueue_unfinished_work_seconds"), 5);
  EXPECT_EQ(valueOf(families, "workqueue_longest_running_processor_seconds"), 5);
  queue.done("a");
  clock_.advance(std::chrono::seconds(1));
  ASSERT_EQ(queue.tryTake(), "a");
  queue.done("a");
  families = meter_.collect(1);
  const MetricFamily* waited = find(families, "workqueue_queue_duration_seconds");
  ASSERT_NE(waited, nullptr);
  EXPECT_EQ(waited->metric[0].histogram.sample_count, 2u);
  EXPECT_EQ(waited->metric[0].histogram.sample_sum, 3);  // the second time from done() on
  EXPECT_EQ(valueOf(families, "workqueue_work_duration_seconds"), 2);
  EXPECT_EQ(valueOf(families, "workqueue_unfinished_work_seconds"), 0);
}

TEST_F(WorkMeterTest, NamesAJobThatSomebodyIsStuckAt) {
  constexpr Duration kLimit = std::chrono::minutes(10);
  meter_.taken("lab/a");
  clock_.advance(kLimit - std::chrono::seconds(1));
  meter_.taken("lab/b");
  EXPECT_EQ(meter_.stuckAt(kLimit), std::nullopt);
  clock_.advance(std::chrono::seconds(1));
  EXPECT_EQ(meter_.stuckAt(kLimit), "lab/a");
  meter_.done("lab/a");
  EXPECT_EQ(meter_.stuckAt(kLimit), std::nullopt);
}

TEST(JobMetrics, ThereIsASeriesForEachJobThatIsThere) {
  v1::TrainingJob job;
  job.mutable_metadata()->set_namespace_("lab");
  job.mutable_metadata()->set_name("a");
  job.mutable_metadata()->set_creation_timestamp("1970-01-01T00:01:40Z");
  v1::JobStatus& status = *job.mutable_status();
  status.set_state("Running");
  status.set_restarts(3);
  status.mutable_ps()->set_succeeded(1);
  status.mutable_worker()->set_ready(4);
  status.mutable_progress()->set_step(77);
  v1::Condition& condition = *status.add_conditions();
  condition.set_type("Running");
  condition.set_status("True");
  const auto families = jobFamilies({job});
  EXPECT_EQ(valueOf(families, "trainyard_jobs", "Running"), 1);
  EXPECT_EQ(valueOf(families, "trainyard_jobs", "Failed"), 0);
  EXPECT_EQ(valueOf(families, "trainyard_job_condition", "True"), 1);
  EXPECT_EQ(valueOf(families, "trainyard_job_replicas", "ready"), 0);  // ps come first
  EXPECT_EQ(valueOf(families, "trainyard_job_replicas", "succeeded"), 1);
  EXPECT_EQ(valueOf(families, "trainyard_job_created_timestamp_seconds"), 100);
  EXPECT_EQ(valueOf(families, "trainyard_job_step"), 77);
  EXPECT_EQ(valueOf(families, "trainyard_job_restarts", "a"), 3);
  const auto none = jobFamilies({});
  EXPECT_EQ(none.size(), 1u);
  EXPECT_EQ(valueOf(none, "trainyard_jobs", "Running"), 0);
}

}  // namespace
}  // namespace trainyard::control
