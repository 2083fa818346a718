// What the user sees while a job runs: table, lines, JSON, and how they come from the tasks'
// reports.
#include "cli/live/monitor.h"
#include "cli/live/plain.h"
#include "cli/live/table.h"
#include "cli/live/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace trainyard::cli {
namespace {

using control::TaskKey;
using control::TaskPhase;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

RunSnapshot sample() {
  RunSnapshot run;
  run.job = "fashion";
  run.state = "Running";
  run.step = 120;
  run.steps = 700;
  run.examples_per_second = 2510.4;
  run.loss = 0.52;
  run.eta_seconds = 23;
  run.elapsed_seconds = 12.5;
  run.checkpoint_step = 100;
  for (const char* name : {"ps-0", "worker-0"}) {
    TaskRow row;
    row.name = name;
    row.is_ps = row.name == "ps-0";
    row.state = row.is_ps ? "serving" : "training";
    row.step = 120;
    if (row.is_ps) {
      row.received_per_second = 32.1e6;
      row.transmitted_per_second = 32.4e6;
    } else {
      row.examples_per_second = 1255;
    }
    run.tasks.push_back(row);
  }
  return run;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text = "\n";
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(TableTest, Golden) {
  EXPECT_EQ(joined(renderTable(sample(), {.columns = 80})), R"(
fashion  Running  step 120/700  2,510 examples/s  loss 0.5200  eta 23.0 s
━━━━━━━━━━━━───────────────────────────────────────────────────────────────  17%
task      state     step  examples/s         in        out
ps-0      serving    120              32.1 MB/s  32.4 MB/s
worker-0  training   120       1,255
running for 12.5 s  checkpoint at step 100
)");
}

TEST(TableTest, TroubleIsTold) {
  RunSnapshot run = sample();
  run.state = "Restarting";
  run.restarts = 1;
  run.waiting_for = "worker 0";
  run.tasks[1].state = "restarting";
  run.tasks[1].restarts = 1;
  const std::string text = joined(renderTable(run, {.columns = 80}));
  EXPECT_THAT(text, HasSubstr("waiting for worker 0"));
  EXPECT_THAT(text, HasSubstr("restarting"));
  EXPECT_THAT(text, HasSubstr("restarts 1"));
}

TEST(TableTest, NoLineIsWiderThanTheTerminal) {
  RunSnapshot run = sample();
  run.waiting_for = "worker 0, worker 1, worker 2, worker 3, worker 4";
  for (int columns = 1; columns < 130; ++columns) {
    for (const std::string& line : renderTable(run, {.columns = columns})) {
      EXPECT_LE(textWidth(line), columns) << line;
    }
  }
}

TEST(TableTest, NarrowTablesKeepTaskAndState) {
  const std::vector<std::string> lines = renderTable(sample(), {.columns = 20});
  EXPECT_EQ(lines[2], "task      state");
  EXPECT_EQ(lines[4], "worker-0  training");
}

TEST(TableTest, LowTerminalsShowFewerTasks) {
  RunSnapshot run = sample();
  for (int i = 1; i < 40; ++i) {
    run.tasks.push_back(run.tasks[1]);
    run.tasks.back().name = "worker-" + std::to_string(i);
  }
  const std::vector<std::string> lines = renderTable(run, {.columns = 80, .rows = 20});
  EXPECT_EQ(lines.size(), 20u);
  EXPECT_THAT(joined(lines), HasSubstr("… and 26 more"));
}

TEST(TableTest, ColourOnlyWhereWanted) {
  EXPECT_EQ(joined(renderTable(sample(), {.columns = 80})).find('\x1b'), std::string::npos);
  EXPECT_NE(joined(renderTable(sample(), {.columns = 80, .colour = true})).find("\x1b[32m"),
            std::string::npos);
}

TEST(ScreenTest, FramesReplaceEachOtherAndEventsStay) {
  Screen screen;
  EXPECT_EQ(screen.draw({"a", "b"}), "a\x1b[K\nb\x1b[K\n\x1b[J");
  EXPECT_EQ(screen.draw({"c"}), "\x1b[2A\rc\x1b[K\n\x1b[J");
  EXPECT_EQ(screen.print("event"), "\x1b[1A\r\x1b[Jevent\n");
  EXPECT_EQ(screen.draw({"d"}), "d\x1b[K\n\x1b[J");
}

TEST(TextTest, FitCountsCodePoints) {
  EXPECT_EQ(fit("abc", 3), "abc");
  EXPECT_EQ(fit("abcd", 3), "ab…");
  EXPECT_EQ(fit("━━━━", 2), "━…");
  EXPECT_EQ(fit("abc", 0), "");
  EXPECT_EQ(textWidth("a━…"), 3);
}

TEST(PlainTest, Line) {
  EXPECT_EQ(renderLine(sample()), "step 120/700 17% 2510 examples/s loss 0.5200 eta 23.0 s");
  RunSnapshot early;
  early.state = "Created";
  early.waiting_for = "ps 1";
  EXPECT_EQ(renderLine(early), "Created, waiting for ps 1");
}

TEST(PlainTest, JsonHasTheSame) {
  const auto json = nlohmann::json::parse(renderJson(sample(), 1'700'000'000'500));
  EXPECT_EQ(json["kind"], "progress");
  EXPECT_DOUBLE_EQ(json["time"], 1'700'000'000.5);
  EXPECT_EQ(json["step"], 120);
  EXPECT_EQ(json["tasks"][0]["receivedBytesPerSecond"], 32.1e6);
  EXPECT_FALSE(json.contains("accuracy"));
}

// A job of one ps and one worker, as the poller sees it.
class MonitorTest : public testing::Test {
 protected:
  MonitorTest() {
    v1::TrainingJob& job = view_.observed.job;
    job.mutable_spec()->mutable_training();
    job.mutable_spec()->mutable_ps()->set_replicas(1);
    job.mutable_spec()->mutable_worker()->set_replicas(1);
    job.mutable_status()->set_state("Running");
    view_.observed.tasks.resize(2);
    view_.observed.tasks[0].key = kPs;
    view_.observed.tasks[1].key = kWorker;
    for (auto& task : view_.observed.tasks) {
      task.created = 1;
      task.phase = TaskPhase::kRunning;
      v1::TaskState& state = view_.tasks[task.key];
      state.set_created(1);
      state.set_child("Running");
      state.mutable_report()->set_phase("Training");
    }
  }

  void report(std::uint64_t bytes_in, std::uint64_t bytes_out, std::uint64_t examples,
              double compute) {
    v1::RuntimeReport& ps = *view_.tasks[kPs].mutable_report();
    ps.clear_traffic();
    v1::PeerTraffic& peer = *ps.add_traffic();
    peer.set_received_bytes(bytes_in);
    peer.set_transmitted_bytes(bytes_out);
    v1::RuntimeReport& worker = *view_.tasks[kWorker].mutable_report();
    worker.set_examples(examples);
    worker.mutable_seconds()->set_compute(compute);
    worker.mutable_seconds()->set_evaluate(100);
  }

  void update(double seconds) { monitor_.update(view_, start_ + fromSeconds(seconds), 1000); }
  std::vector<std::string> told() {
    std::vector<std::string> messages;
    for (const RunEvent& event : monitor_.takeEvents()) messages.push_back(event.message);
    return messages;
  }

  static constexpr TaskKey kPs{v1::ROLE_PS, 0};
  static constexpr TaskKey kWorker{v1::ROLE_WORKER, 0};
  const TimePoint start_{std::chrono::hours(1)};
  RunView view_;
  RunMonitor monitor_{"fashion", start_};
};

TEST_F(MonitorTest, RatesAreDifferences) {
  report(1000, 2000, 128, 1);
  update(0);
  EXPECT_FALSE(monitor_.snapshot().tasks[0].received_per_second.has_value());
  report(3000, 6000, 640, 3);
  update(2);
  const RunSnapshot& run = monitor_.snapshot();
  EXPECT_DOUBLE_EQ(*run.tasks[0].received_per_second, 1000);
  EXPECT_DOUBLE_EQ(*run.tasks[0].transmitted_per_second, 2000);
  EXPECT_DOUBLE_EQ(*run.tasks[1].examples_per_second, 256);
  EXPECT_EQ(run.tasks[0].state, "serving");
  EXPECT_EQ(run.tasks[1].state, "training");
}

TEST_F(MonitorTest, BytesOnTheWireWhereTheyAreKnown) {
  report(1000, 1000, 600, 2);
  update(0);
  EXPECT_FALSE(monitor_.snapshot().tasks[0].wire_received_bytes.has_value());
  EXPECT_THAT(renderTraffic(monitor_.snapshot(), 0), Not(HasSubstr("wire")));
  v1::WireTraffic& wire = *view_.tasks[kPs].mutable_report()->mutable_wire();
  wire.set_received_bytes(1010);
  wire.set_transmitted_bytes(1020);
  update(1);
  wire.set_received_bytes(5);  // a new agent, from zero
  wire.set_transmitted_bytes(6);
  update(2);
  EXPECT_THAT(renderTraffic(monitor_.snapshot(), 0),
              HasSubstr("\"wireReceivedBytes\":1015,\"wireTransmittedBytes\":1026"));
}

TEST_F(MonitorTest, TablesAreAddedUpOverTasksAndTheirProcesses) {
  report(1000, 1000, 600, 2);
  update(0);
  EXPECT_THAT(renderTraffic(monitor_.snapshot(), 0), Not(HasSubstr("tables")));
  v1::TableWork& held = *view_.tasks[kPs].mutable_report()->add_tables();
  held.set_table("user");
  v1::TableWork& asked = *view_.tasks[kWorker].mutable_report()->add_tables();
  asked.set_table("user");
  for (const std::uint64_t pulled : {900U, 300U}) {  // then of a process that began anew
    held.set_rows(70);
    held.set_bytes(4096);
    held.set_created(80);
    held.set_refused(3);
    held.set_evicted(40);
    held.set_pulled(pulled);
    held.set_pushed(pulled);
    held.set_hot(0.5);
    asked.set_occurrences(2 * pulled);
    asked.set_distinct(pulled);
    update(1);
  }
  EXPECT_THAT(
      renderTraffic(monitor_.snapshot(), 0),
      HasSubstr("\"tables\":[{\"table\":\"user\",\"rows\":70,\"bytes\":4096,\"created\":80,"
                "\"refused\":3,\"evicted\":40,\"pulled\":1200,\"pushed\":1200,\"hotRows\":0.5,"
                "\"occurrences\":2400,\"distinct\":1200}]"));
}

TEST_F(MonitorTest, CountersOfARestartedProcessAreAddedUp) {
  report(1000, 1000, 600, 2);
  update(0);
  report(200, 100, 300, 1);  // a new process, from zero
  update(1);
  EXPECT_EQ(monitor_.snapshot().tasks[0].received_bytes, 1200u);
  EXPECT_EQ(monitor_.snapshot().tasks[0].transmitted_bytes, 1100u);
  EXPECT_FALSE(monitor_.snapshot().tasks[0].received_per_second.has_value());
  EXPECT_DOUBLE_EQ(*monitor_.examplesPerSecond(), 900 / 3.0) << "evaluation is not counted";
}

TEST_F(MonitorTest, TheWordOfAnEarlierLifeIsNotBelieved) {
  update(0);
  view_.observed.tasks[1].created = 2;
  update(1);
  EXPECT_EQ(monitor_.snapshot().tasks[1].state, "starting");
}

TEST_F(MonitorTest, RestartSaysWhy) {
  update(0);
  told();
  v1::TaskRecord* record = view_.observed.job.mutable_status()->add_tasks();
  record->set_task("worker-0");
  record->set_restarts(1);
  view_.tasks[kWorker].set_last_signal(9);
  update(1);
  EXPECT_THAT(told(), ElementsAre("worker-0 is restarted (killed by signal 9)"));
  EXPECT_EQ(monitor_.snapshot().tasks[1].restarts, 1u);
  update(2);
  EXPECT_TRUE(told().empty());
  record->set_restarts(2);
  view_.observed.tasks[1].exit = control::TaskExit{3, 0, "exit code 3: data.images: no such file"};
  update(3);
  EXPECT_THAT(told(),
              ElementsAre("worker-0 is restarted (exit code 3: data.images: no such file)"));
}

TEST_F(MonitorTest, ARestartWaitsALittleForItsReason) {
  update(0);
  told();
  v1::TaskRecord* record = view_.observed.job.mutable_status()->add_tasks();
  record->set_task("worker-0");
  record->set_restarts(1);
  update(1);
  EXPECT_TRUE(told().empty());
  view_.tasks[kWorker].set_last_signal(9);
  update(2);
  EXPECT_THAT(told(), ElementsAre("worker-0 is restarted (killed by signal 9)"));
  view_.tasks[kWorker].set_last_signal(0);
  record->set_restarts(2);
  update(3);
  update(4);
  EXPECT_TRUE(told().empty());
  update(10);
  EXPECT_THAT(told(), ElementsAre("worker-0 is restarted")) << "though nobody says why";
  record->set_restarts(3);
  view_.observed.job.mutable_status()->set_state("Failed");
  update(11);
  EXPECT_THAT(told(), Contains("worker-0 is restarted")) << "there is no later look";
}

TEST_F(MonitorTest, EachEventIsToldOnce) {
  v1::JobProgress progress;
  progress.set_step(100);
  progress.set_steps(700);
  progress.set_resumed_from_step(50);
  progress.set_evaluated(true);
  progress.set_accuracy(0.8);
  progress.set_accuracy_step(100);
  progress.set_has_checkpoint(true);
  progress.set_checkpoint_step(90);
  progress.set_waiting_for("worker 0");
  view_.progress = progress;
  update(0);
  EXPECT_THAT(told(), ElementsAre("resumed from step 50", "accuracy 0.8000 at step 100",
                                  "checkpoint at step 90", "waiting for worker 0", "job running"));
  update(1);
  EXPECT_TRUE(told().empty());
  view_.progress->set_step(120);
  update(2);
  EXPECT_DOUBLE_EQ(*monitor_.snapshot().eta_seconds, (700 - 120) / 10.0);
}

TEST_F(MonitorTest, RowsWithoutASecondCopyAreToldAtTheirBeginningAndEnd) {
  view_.progress.emplace();
  update(0);
  told();
  view_.progress->set_unguarded_parts(16);
  update(1);
  EXPECT_THAT(told(), ElementsAre("no second copy of 16 parts of tables, until they are copied"));
  view_.progress->set_unguarded_parts(8);
  update(2);
  EXPECT_TRUE(told().empty());
  EXPECT_THAT(joined(renderTable(monitor_.snapshot(), {.columns = 100})),
              HasSubstr("no second copy of 8 parts of tables yet"));
  view_.progress->set_unguarded_parts(0);
  update(3);
  EXPECT_THAT(told(), ElementsAre("all parts of tables have a second copy again"));
}

TEST_F(MonitorTest, TasksThatAreNotThereYetAreShown) {
  view_.observed.tasks.clear();
  view_.tasks.clear();
  update(0);
  ASSERT_EQ(monitor_.snapshot().tasks.size(), 2u);
  EXPECT_EQ(monitor_.snapshot().tasks[1].name, "worker-0");
  EXPECT_EQ(monitor_.snapshot().tasks[1].state, "starting");
  view_.observed.job.mutable_spec()->mutable_run_policy()->set_suspend(true);
  update(1);
  EXPECT_EQ(monitor_.snapshot().tasks[1].state, "ended");
}

TEST_F(MonitorTest, ALaunchDoesNotSayThatTheJobRestedBefore) {
  view_.observed.job.mutable_status()->set_state("Suspended");
  update(0);
  EXPECT_THAT(told(), Not(Contains("job suspended")));
  view_.observed.job.mutable_status()->set_state("Running");
  update(1);
  EXPECT_THAT(told(), ElementsAre("job running"));
  view_.observed.job.mutable_spec()->mutable_run_policy()->set_suspend(true);
  view_.observed.job.mutable_status()->set_state("Suspended");
  update(2);
  EXPECT_THAT(told(), ElementsAre("job suspended"));
}

class ForeignMonitorTest : public MonitorTest {
 protected:
  ForeignMonitorTest() {
    view_.observed.job.mutable_spec()->clear_training();
    for (auto& [key, state] : view_.tasks) {
      state.mutable_id()->set_role(key.role);
      state.mutable_report()->set_phase("Running");
      state.mutable_report()->set_ready(true);
    }
  }
  void tellOf(std::int64_t step, std::uint64_t examples) {
    v1::RuntimeReport& worker = *view_.tasks[kWorker].mutable_report();
    worker.set_examples(examples);
    worker.mutable_told()->set_step(step);
    worker.mutable_told()->set_loss(0.5);
    worker.mutable_told()->set_accuracy(0.75);
    worker.mutable_told()->set_examples_per_second(64);
  }
};

TEST_F(ForeignMonitorTest, WhoTellsNothingIsShownAsBefore) {
  update(0);
  const RunSnapshot& run = monitor_.snapshot();
  EXPECT_FALSE(run.hasSteps());
  EXPECT_EQ(renderLine(run), "Running");
  EXPECT_THAT(renderJson(run, 0), Not(HasSubstr("step")));
  EXPECT_THAT(renderTable(run, {.columns = 100})[1], Not(HasSubstr("step")));
}

TEST_F(ForeignMonitorTest, WhatProgramsTellIsShown) {
  tellOf(7, 640);
  update(0);
  tellOf(9, 768);
  update(2);
  const RunSnapshot& run = monitor_.snapshot();
  EXPECT_EQ(renderLine(run), "step 9 64 examples/s loss 0.5000 accuracy 0.7500");
  EXPECT_THAT(renderJson(run, 0), HasSubstr("\"step\":9,\"examplesPerSecond\":64.0"));
  EXPECT_EQ(run.tasks[1].step, 9);
  EXPECT_EQ(run.tasks[1].examples_per_second, 64);
  EXPECT_FALSE(run.tasks[0].step.has_value()) << "the ps tells nothing";
  const std::vector<std::string> table = renderTable(run, {.columns = 100});
  EXPECT_THAT(table[0], HasSubstr("step 9  64.0 examples/s  loss 0.5000"));
  EXPECT_THAT(table[1], HasSubstr("step  examples/s")) << "no bar without a target";
  EXPECT_DOUBLE_EQ(*monitor_.examplesPerSecond(), 64) << "since it was first seen";
  EXPECT_THAT(told(), ElementsAre("job running")) << "it may evaluate at every step";
  view_.tasks[kWorker].mutable_report()->mutable_told()->set_steps(90);
  update(3);
  EXPECT_THAT(renderLine(monitor_.snapshot()), HasSubstr("step 9/90 10% "));
}

TEST_F(ForeignMonitorTest, SilenceIsNoPace) {
  tellOf(7, 640);
  update(0);
  view_.tasks[kWorker].mutable_report()->mutable_told()->clear_examples_per_second();
  update(60);
  EXPECT_FALSE(monitor_.snapshot().examples_per_second.has_value());
  EXPECT_EQ(monitor_.snapshot().step, 7);
}

}  // namespace
}  // namespace trainyard::cli
