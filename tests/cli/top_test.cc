// What `trainyard top` makes of the pages of metrics.
#include "cli/live/text.h"
#include "cli/top/collect_pages.h"
#include "cli/top/metrics_text.h"
#include "cli/top/top_model.h"
#include "cli/top/top_screen.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard::cli {
namespace {

using control::TaskKey;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const TaskKey kPs0{v1::ROLE_PS, 0}, kPs1{v1::ROLE_PS, 1};
const TaskKey kWorker0{v1::ROLE_WORKER, 0}, kWorker1{v1::ROLE_WORKER, 1},
    kWorker2{v1::ROLE_WORKER, 2};
const std::vector<TaskKey> kTasks = {kPs0, kPs1, kWorker0, kWorker1, kWorker2};

std::string workerPage(double examples, double steps, double compute, double wait) {
  return fmt::format(
      "# TYPE trainyard_task_ready gauge\n"
      "trainyard_task_ready{{trainyard_job=\"a\",role=\"worker\",index=\"0\"}} 1\n"
      "trainyard_worker_examples_total{{index=\"0\"}} {}\n"
      "trainyard_worker_steps_total {}\n"
      "trainyard_worker_phase_seconds_total{{phase=\"data\"}} 0\n"
      "trainyard_worker_phase_seconds_total{{phase=\"compute\"}} {}\n"
      "trainyard_worker_phase_seconds_total{{phase=\"push_pull\"}} {}\n"
      "trainyard_global_step {}\n",
      examples, steps, compute, wait, steps);
}

std::string psPage(double received, double transmitted, double step) {
  return fmt::format(
      "trainyard_task_ready 1\ntrainyard_ps_wire_receive_bytes_total {}\n"
      "trainyard_ps_wire_transmit_bytes_total {}\ntrainyard_global_step {}\n"
      "trainyard_target_steps 1000\ntrainyard_training_loss 0.25\n"
      "trainyard_checkpoint_last_success_timestamp_seconds 1000\n",
      received, transmitted, step);
}

TEST(MetricsText, ReadsNamesLabelsAndValues) {
  const auto samples = parseMetricsText(
      "# HELP a Something.\n# TYPE a counter\na 1\nb{x=\"1\",y=\"q\\\"}, \\\\\"} 2.5 1700000000\n"
      "c{} +Inf\nbroken{x=\"1\n\nd NaN\nalone\n");
  ASSERT_GE(samples.size(), 2u);
  EXPECT_EQ(samples[0].name, "a");
  EXPECT_EQ(samples[0].value, 1);
  EXPECT_EQ(samples[1].name, "b");
  EXPECT_EQ(samples[1].labels.at("y"), "q\"}, \\");
  EXPECT_EQ(samples[1].value, 2.5);
  for (const MetricSample& sample : samples) {
    EXPECT_NE(sample.name, "broken");
    EXPECT_NE(sample.name, "alone");
  }
}

TEST(MetricsText, ServersBytesAreOnTheWireOrPayloadWhicheverAreMore) {
  const std::string page = psPage(100, 50, 7);
  const TaskReading shared =
      readTaskPage(page + "trainyard_ps_receive_bytes_total{peer=\"worker-0\"} 900\n");
  EXPECT_EQ(shared.received, 900) << "most of it through shared memory";
  EXPECT_EQ(shared.transmitted, 50);
  const TaskReading own =
      readTaskPage(page + "trainyard_ps_receive_bytes_total{peer=\"worker-0\"} 98\n");
  EXPECT_EQ(own.received, 100);
  EXPECT_EQ(own.step, 7);
  EXPECT_FALSE(own.examples.has_value());
  const TaskReading payload = readTaskPage(
      "trainyard_ps_receive_bytes_total{peer=\"worker-0\"} 3\n"
      "trainyard_ps_receive_bytes_total{peer=\"worker-1\"} 4\n");
  EXPECT_EQ(payload.received, 7);
  EXPECT_FALSE(payload.transmitted.has_value());
}

class TopTest : public testing::Test {
 protected:
  // After `second` seconds, in which worker-1 computed twice as long a step as the others.
  void look(double second) {
    TaskPages pages;
    pages[kPs0] = psPage(8e6 * second, 1e6 * second, 100 + 10 * second);
    pages[kPs1] = psPage(1e6 * second, 0, 100 + 10 * second);
    pages[kWorker0] = workerPage(100 * second, 10 * second, 0.4 * second, 0.6 * second);
    pages[kWorker1] = workerPage(100 * second, 10 * second, 0.8 * second, 0.2 * second);
    pages[kWorker2] = workerPage(100 * second, 10 * second, 0.4 * second, 0.6 * second);
    update(pages, second);
  }
  void update(const TaskPages& pages, double second) {
    model_.update("Running", kTasks, pages, TimePoint() + fromSeconds(second),
                  1'000'000 + static_cast<UnixMillis>(second * 1000));
  }
  std::string text(int columns, int rows = 0) {
    std::string text;
    for (const std::string& line : renderTop(model_.view(), {columns, rows, false})) {
      EXPECT_LE(textWidth(line), columns) << line;
      text += line + "\n";
    }
    return text;
  }

  TopModel model_{"a"};
};

TEST_F(TopTest, RatesComeWithTheSecondLook) {
  look(1);
  EXPECT_FALSE(model_.hasRates());
  EXPECT_FALSE(model_.view().examples_per_second.has_value());
  look(3);
  EXPECT_TRUE(model_.hasRates());
  const TopJob& job = model_.view();
  EXPECT_DOUBLE_EQ(job.examples_per_second.value(), 300);
  EXPECT_EQ(job.step, 130);
  EXPECT_DOUBLE_EQ(job.eta_seconds.value(), 87);
  EXPECT_DOUBLE_EQ(job.checkpoint_age_seconds.value(), 3);
}

TEST_F(TopTest, StragglersAndBusyServersComeFirst) {
  look(1);
  look(2);
  const TopJob& job = model_.view();
  EXPECT_EQ(job.workers[0].name, "worker-1");
  EXPECT_DOUBLE_EQ(job.workers[0].slowdown.value(), 2);
  EXPECT_NEAR(job.workers[0].waiting.value(), 0.2, 1e-9);
  EXPECT_DOUBLE_EQ(job.workers[1].slowdown.value(), 1);
  EXPECT_EQ(job.servers[0].name, "ps-0");
  EXPECT_DOUBLE_EQ(job.servers[0].share.value(), 0.9);
  const std::string shown = text(120);
  EXPECT_LT(shown.find("worker-1"), shown.find("worker-0"));
  EXPECT_THAT(shown, HasSubstr("hot share 90%, even would be 50%"));
  EXPECT_THAT(shown, HasSubstr("2.00x"));
}

TEST_F(TopTest, WhoDoesNotAnswerIsNamedFirst) {
  look(1);
  TaskPages pages;
  pages[kWorker0] = workerPage(200, 20, 0.8, 1.2);
  update(pages, 2);
  EXPECT_FALSE(model_.view().workers[0].reached);
  EXPECT_EQ(model_.view().workers[2].name, "worker-0");
  EXPECT_THAT(text(100), HasSubstr("no answer"));
}

TEST_F(TopTest, ACounterThatFellHasStartedAnew) {
  look(10);
  TaskPages pages;
  pages[kWorker0] = workerPage(50, 5, 1, 1);
  update(pages, 11);
  for (const TopTask& worker : model_.view().workers) {
    if (worker.name != "worker-0") continue;
    EXPECT_DOUBLE_EQ(worker.examples_per_second.value(), 50);
  }
}

// Two counters of all-reduce and the share that was hidden since the start.
std::string ringPage(double second, double compute, double sent, double seconds, double hidden) {
  return workerPage(100 * second, 10 * second, compute, 0.1 * second) +
         fmt::format(
             "trainyard_collective_bytes_total{{op=\"all_reduce\",direction=\"transmit\"}} {0}\n"
             "trainyard_collective_bytes_total{{op=\"all_reduce\",direction=\"receive\"}} {0}\n"
             "trainyard_collective_bytes_total{{op=\"broadcast\",direction=\"transmit\"}} 1000000\n"
             "trainyard_collective_bytes_total{{op=\"broadcast\",direction=\"receive\"}} 0\n"
             "trainyard_collective_seconds_total{{op=\"all_reduce\"}} {1}\n"
             "trainyard_collective_seconds_total{{op=\"broadcast\"}} 7\n"
             "trainyard_collective_overlap_ratio {2}\n"
             "trainyard_worker_wire_receive_bytes_total 5\n",
             sent, seconds, hidden);
}

TEST_F(TopTest, AllReduceShowsItsBytesWhatIsHiddenAndTheSlowest) {
  const std::vector<TaskKey> workers = {kWorker0, kWorker1};
  const auto see = [&](double second, const TaskPages& pages) {
    model_.update("Running", workers, pages, TimePoint() + fromSeconds(second), 1'000'000);
  };
  // Of 1 s none was hidden; of the second that follows 0.75 and 0.25 are.
  see(1, {{kWorker0, ringPage(1, 0.4, 30e6, 1, 0)}, {kWorker1, ringPage(1, 0.8, 30e6, 1, 0)}});
  EXPECT_FALSE(model_.view().all_reduce.has_value());
  see(2,
      {{kWorker0, ringPage(2, 0.8, 60e6, 2, 0.375)}, {kWorker1, ringPage(2, 1.6, 60e6, 2, 0.125)}});
  const TopJob& job = model_.view();
  ASSERT_TRUE(job.all_reduce.has_value());
  EXPECT_DOUBLE_EQ(job.all_reduce->sent_per_second, 60e6);
  EXPECT_DOUBLE_EQ(job.all_reduce->hidden.value(), 0.5);
  EXPECT_EQ(job.all_reduce->slowest, "worker-1");
  EXPECT_DOUBLE_EQ(job.workers[1].hidden.value(), 0.75);
  EXPECT_DOUBLE_EQ(job.workers[1].received_per_second.value(), 30e6) << "in shared memory";
  const std::string shown = text(120);
  EXPECT_THAT(shown,
              HasSubstr("2 workers, slowest first; all-reduce sends 60 MB/s, 50% of its time "
                        "hidden; slowest worker-1 2.00x\n"
                        "worker-1     ready            100 ex/s"));
  EXPECT_THAT(shown, HasSubstr("hidden  75%  in 30 MB/s  out 30 MB/s"));
  EXPECT_THAT(shown, Not(HasSubstr("parameter servers")));
  for (const int columns : {20, 40, 80, 200}) (void)text(columns);
}

// Nothing was waited for between two looks: rounding lets the computed time of waiting fall.
TEST_F(TopTest, AllReduceThatIsHiddenAltogether) {
  for (const double seconds : {3.0, 3.1, 3.3, 3.7, 4.9, 7.3}) {
    model_.update("Running", {kWorker0},
                  {{kWorker0, ringPage(seconds, seconds, 30e6, seconds, 1 - 0.7 / seconds)}},
                  TimePoint() + fromSeconds(seconds), 1'000'000);
    if (!model_.hasRates()) continue;
    EXPECT_NEAR(model_.view().workers[0].hidden.value_or(-1), 1, 1e-9) << seconds;
  }
}

// Of two tables: 1,000 rows a second of which a tenth is hot, and 3,000 of which a half is.
TEST_F(TopTest, ServersOfTablesShowRowsAndTheShareOfTheHottest) {
  const auto page = [](double second) {
    return psPage(8e6 * second, 1e6 * second, 10 * second) +
           fmt::format(
               "trainyard_ps_rows_pulled_total{{index=\"0\",table=\"user\"}} {}\n"
               "trainyard_ps_rows_pulled_total{{index=\"0\",table=\"item\"}} {}\n"
               "trainyard_ps_hot_rows_ratio{{index=\"0\",table=\"user\"}} 0.1\n"
               "trainyard_ps_hot_rows_ratio{{index=\"0\",table=\"item\"}} 0.5\n",
               1000 * second, 3000 * second);
  };
  look(1);
  look(2);
  EXPECT_FALSE(model_.view().rows_per_second.has_value());
  EXPECT_THAT(text(200), Not(HasSubstr("rows/s")));
  for (const double second : {3, 5}) update({{kPs0, page(second)}, {kPs1, page(second)}}, second);
  const TopJob& job = model_.view();
  EXPECT_DOUBLE_EQ(job.rows_per_second.value(), 8000);
  EXPECT_DOUBLE_EQ(job.hot_rows.value(), 0.4);
  EXPECT_DOUBLE_EQ(job.servers[0].rows_per_second.value(), 4000);
  EXPECT_DOUBLE_EQ(job.servers[0].hot_rows.value(), 0.4);
  const std::string shown = text(160);
  EXPECT_THAT(shown, HasSubstr("even would be 50%; tables 8,000 rows/s, 40% of hot ids"));
  EXPECT_THAT(shown, HasSubstr("4,000 rows/s  hot  40%"));
  for (const int columns : {20, 40, 80, 200}) (void)text(columns);
}

TEST_F(TopTest, FitsEveryScreen) {
  look(1);
  look(2);
  for (const int columns : {20, 40, 80, 200}) (void)text(columns);
  for (const int rows : {9, 10, 12, 40}) {
    EXPECT_LE(renderTop(model_.view(), {80, rows, false}).size(), static_cast<std::size_t>(rows));
  }
  EXPECT_THAT(text(80, 10), HasSubstr("more"));
  EXPECT_THAT(text(80, 40), Not(HasSubstr("more")));
}

TEST(Sparkline, ShowsTheLastValues) {
  EXPECT_EQ(sparkline({0, 1, 2, 3, 4, 5, 6, 7}, 8, Floor::kLeast), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(sparkline({9, 9, 0, 7}, 2, Floor::kLeast), "▁█");
  EXPECT_EQ(sparkline({5, 5}, 8, Floor::kLeast), "▅▅");
  EXPECT_EQ(sparkline({4, 8, 7.5, 0}, 8, Floor::kZero), "▅██▁");
  EXPECT_EQ(sparkline({0, 0}, 8, Floor::kZero), "▁▁");
  EXPECT_EQ(sparkline({}, 8, Floor::kZero), "");
}

TEST(TrafficBar, FillsEighthsOfAColumn) {
  EXPECT_EQ(trafficBar(1, 3), "███");
  EXPECT_EQ(trafficBar(0.5, 3), "█▌ ");
  EXPECT_EQ(trafficBar(0, 3), "   ");
}

TEST(CollectPages, AnErrorOnlyWhereNobodyAnswers) {
  const auto some = collectPages(kTasks, [](const TaskKey& key) -> StatusOr<std::string> {
    if (key.role == v1::ROLE_PS) return absl::UnavailableError("gone");
    return toString(key);
  });
  ASSERT_TRUE(some.ok());
  EXPECT_EQ(some->size(), 3u);
  EXPECT_EQ(some->at(kWorker2), "worker-2");
  const auto none = collectPages(kTasks, [](const TaskKey&) -> StatusOr<std::string> {
    return absl::UnavailableError("gone");
  });
  EXPECT_TRUE(absl::IsUnavailable(none.status()));
  EXPECT_TRUE(collectPages({}, {}).ok());
}

TEST_F(TopTest, ProgramsThatTellNoTargetHaveAStep) {
  TaskPages pages;
  for (const int second : {0, 2}) {
    const std::string page = workerPage(64 * second, second, 0, 0);
    pages[kWorker0] = page;
    pages[kWorker1] = page + "trainyard_training_loss 0.5\n";
    pages[kWorker2] = page + "trainyard_training_loss 0.75\n";
    update(pages, second);
  }
  const std::string text =
      fmt::format("{}", fmt::join(renderTop(model_.view(), {.columns = 120}), "\n"));
  EXPECT_THAT(text, HasSubstr("step 2  192 examples/s  loss 0.5000"));
}

}  // namespace
}  // namespace trainyard::cli
