// Local jobs as `get`, `describe` and `logs` show them, and how the verbs find, suspend and delete
// those that nobody looks after.
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "base/core/exit_code.h"
#include "base/core/strings.h"
#include "base/process/files.h"
#include "cli/app.h"
#include "cli/closest_word.h"
#include "cli/jobs/control.h"
#include "cli/jobs/find_jobs.h"
#include "cli/jobs/job_text.h"
#include "cli/jobs/task_logs.h"
#include "cli/run/directory.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/job/job.h"
#include "tests/base/process/temp_dir.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr UnixMillis kTime = 1'700'000'000'000;  // 2023-11-14T22:13:20Z
constexpr char kSomeJob[] = R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: fashion}
spec:
  ps: {replicas: 2}
  worker: {replicas: 2}
  training:
    model: {name: mlp, hidden: [8]}
    data: {format: synthetic, shape: [4, 4, 1], classes: 3, samples: 64, evalSamples: 16}
    batchSize: 8
    steps: 700
    optimizer: {name: SGD, learningRate: 0.1}
)";

void addCondition(v1::JobStatus* status, const char* type, const char* value, const char* reason,
                  const char* message) {
  v1::Condition* condition = status->add_conditions();
  condition->set_type(type);
  condition->set_status(value);
  condition->set_reason(reason);
  condition->set_message(message);
  condition->set_last_transition_time("2023-11-14T22:12:20Z");
}

JobView sampleView() {
  JobView view;
  view.name = "fashion";
  view.dir = "runs/fashion";
  view.job = control::parseJob(kSomeJob, "job.yaml", {}, nullptr).value();
  view.job.mutable_metadata()->set_creation_timestamp("2023-11-14T22:08:15Z");
  v1::JobStatus& status = *view.job.mutable_status();
  status.set_state("Running");
  status.mutable_ps()->set_ready(2);
  status.mutable_worker()->set_ready(1);
  status.set_restarts(1);
  addCondition(&status, "Running", "True", "AllTasksReady", "4 of 4 tasks are ready");
  view.launcher = 4711;
  view.state = "Running";
  view.step = 200;
  view.steps = 700;
  view.checkpoint_step = 112;
  view.loss = 0.47414;
  view.accuracy = 0.8106;
  view.examples_per_second = 1333.4;
  return view;
}

JobView interruptedView() {
  JobView view = sampleView();
  view.name = "try";
  view.dir = "runs/try";
  view.launcher.reset();
  view.state = "Interrupted";
  view.step = 112;
  view.accuracy.reset();
  view.examples_per_second.reset();
  return view;
}

TEST(JobsTableTest, Golden) {
  EXPECT_EQ("\n" + jobsTable({sampleView(), interruptedView()}, false, kTime), R"(
NAME     STATE        STEP     WORKERS  PS   LOSS    ACCURACY  EXAMPLES/S  AGE
fashion  Running      200/700  1/2      2/2  0.4741  0.8106    1,333       5m5s
try      Interrupted  112/700  0/2      0/2  0.4741  -         -           5m5s
)");
}

TEST(JobsTableTest, Wide) {
  JobView failed = interruptedView();
  failed.state = "Failed";
  addCondition(failed.job.mutable_status(), "Failed", "True", "BadInput", "worker-1: no data");
  const std::string text = jobsTable({failed}, true, kTime);
  EXPECT_THAT(text, HasSubstr("RESTARTS  CHECKPOINT  LAUNCHER  DIRECTORY  REASON\n"));
  EXPECT_THAT(text, HasSubstr("1         112         -         runs/try   BadInput: worker-1: no"));
}

TEST(JobsTableTest, ProgramsOfUsersHaveAStepWhereTheyTellIt) {
  JobView view = sampleView();
  view.job.mutable_spec()->clear_training();
  view.steps = 0;
  view.job.mutable_status()->clear_progress();
  EXPECT_THAT(jobsTable({view}, false, kTime), HasSubstr("Running  -     1/2"));
  view.job.mutable_status()->mutable_progress()->set_step(200);
  EXPECT_THAT(jobsTable({view}, false, kTime), HasSubstr("Running  200   1/2"));
}

TEST(JobsTableTest, AgesAreKubectls) {
  const auto age = [](std::int64_t seconds) { return formatAge(kTime - seconds * 1000, kTime); };
  EXPECT_EQ(age(0), "0s");
  EXPECT_EQ(age(119), "119s");
  EXPECT_EQ(age(120), "2m");
  EXPECT_EQ(age(330), "5m30s");
  EXPECT_EQ(age(600), "10m");
  EXPECT_EQ(age(3 * 3600 + 720), "3h12m");
  EXPECT_EQ(age(8 * 3600), "8h");
  EXPECT_EQ(age(52 * 3600), "2d4h");
  EXPECT_EQ(age(9 * 86400), "9d");
  EXPECT_EQ(age(-1), "-");
  EXPECT_EQ(formatAge(0, kTime), "-");
}

TEST(JobJsonTest, HoldsTheShownStateAndTheDirectory) {
  const auto json = jobJson(interruptedView());
  EXPECT_EQ(json["kind"], "TrainingJob");
  EXPECT_EQ(json["metadata"]["name"], "fashion");
  EXPECT_EQ(json["spec"]["training"]["steps"], 700);
  EXPECT_EQ(json["status"]["state"], "Interrupted");
  EXPECT_EQ(json["status"]["progress"]["step"], 112);
  EXPECT_EQ(json["status"]["progress"]["loss"], "0.4741");
  EXPECT_EQ(json["run"]["directory"], "runs/try");
  EXPECT_TRUE(json["run"]["launcher"].is_null());
  EXPECT_EQ(jobJson(sampleView())["run"]["launcher"], 4711);
}

TEST(DescribeTest, Golden) {
  JobDetails details;
  details.view = sampleView();
  TaskView ps{"ps-0", "Ready", 101, 102, 1, 1, 0, 9091, "", "", ""};
  TaskView worker{"worker-0", "Exited (signal 9)", 103, 0, 2, 3, 4, 9092, "", "", ""};
  details.tasks = {ps, worker};
  runtime::Manifest manifest;
  manifest.step = 112;
  manifest.epoch = 2;
  manifest.files = {{"a", 3000000, ""}, {"b", 3200000, ""}};
  manifest.unix_ms = kTime - 20'000;
  details.checkpoints = {manifest};
  details.events = {{"2023-11-14T22:08:15Z", "Normal", "JobCreated", "ps: 2, workers: 2"},
                    {"2023-11-14T22:12:20Z", "Normal", "JobRunning", "4 of 4 tasks are ready"}};
  EXPECT_EQ("\n" + describeText(details, {{"model", "mlp"}, {"batch", "8 per worker"}}, kTime, 1),
            R"(
Name:       fashion
Directory:  runs/fashion
State:      Running
Launcher:   process 4711
Created:    2023-11-14T22:08:15Z (5m5s ago)
Spec:
  model  mlp
  batch  8 per worker
Progress:
  step        200/700
  checkpoint  112
  loss        0.4741
  accuracy    0.8106
  examples/s  1,333
  restarts    1
Tasks:
  NAME      STATE              PROCESS  AGENT  LIFE  START  RESTARTS  METRICS
  ps-0      Ready              102      101    1     1      0         127.0.0.1:9091
  worker-0  Exited (signal 9)  -        103    2     3      4         127.0.0.1:9092
Checkpoints:
  STEP  EPOCH  FILES  SIZE    AGE
  112   2      2      6.2 MB  20s
Conditions:
  TYPE     STATUS  AGE  REASON         MESSAGE
  Running  True    60s  AllTasksReady  4 of 4 tasks are ready
Events:  (1 earlier ones)
  AGE  TYPE    REASON      MESSAGE
  60s  Normal  JobRunning  4 of 4 tasks are ready
)");
}

TEST(ShownStateTest, IsWhatHoldsNow) {
  v1::TrainingJob job;
  v1::JobStatus& status = *job.mutable_status();
  EXPECT_EQ(shownState(job, true), "Starting");
  EXPECT_EQ(shownState(job, false), "Interrupted");
  status.set_state("Running");
  EXPECT_EQ(shownState(job, true), "Running");
  EXPECT_EQ(shownState(job, false), "Interrupted");
  job.mutable_spec()->mutable_run_policy()->set_suspend(true);
  EXPECT_EQ(shownState(job, true), "Suspending");
  EXPECT_EQ(shownState(job, false), "Interrupted") << "it did not come to its checkpoint";
  status.set_state("Suspended");
  EXPECT_EQ(shownState(job, true), "Suspending") << "the launcher is about to leave";
  EXPECT_EQ(shownState(job, false), "Suspended");
  job.mutable_spec()->mutable_run_policy()->set_suspend(false);
  EXPECT_EQ(shownState(job, true), "Starting");
  EXPECT_EQ(shownState(job, false), "Interrupted");
  addCondition(&status, "Suspended", "Unknown", "Stopping", "");
  EXPECT_EQ(shownState(job, true), "Suspending") << "a stop that was begun is carried through";
  for (const char* end : {"Succeeded", "Failed"}) {
    status.set_state(end);
    EXPECT_EQ(shownState(job, true), end);
    EXPECT_EQ(shownState(job, false), end);
  }
  job.mutable_metadata()->set_deletion_timestamp("2023-11-14T22:12:20Z");
  EXPECT_EQ(shownState(job, false), "Terminating");
}

// Runs in a temporary folder, at rest: nobody holds their locks.
class JobsTest : public testing::Test {
 protected:
  fs::path add(const std::string& name, const std::string& job_name = "fashion",
               const control::ParseOptions& changes = {}) {
    v1::TrainingJob job = control::parseJob(kSomeJob, "job.yaml", changes, nullptr).value();
    job.mutable_metadata()->set_name(job_name);
    DirectoryOptions options;
    options.dir = (runs() / name).string();
    options.cwd = root_.path().string();
    EXPECT_TRUE(openRunDirectory(options, job, systemClock()).ok());
    return runs() / name;
  }
  fs::path runs() const { return root_.path() / "runs"; }

  int run(std::vector<std::string> arguments) {
    std::ostringstream out, err;
    Console console{out, err};
    console.runs_dir = runs().string();
    const int code = runApp(arguments, console);
    out_ = out.str();
    err_ = err.str();
    return code;
  }
  static std::string textOf(const Status& status) {
    return std::string(fromAbsl(status.message()));
  }
  static void write(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::app) << text;
  }

  TempDir root_;
  std::string out_, err_;
};

TEST_F(JobsTest, AreFoundByDirectoryAndByName) {
  EXPECT_THAT(listJobs(runs()), IsEmpty());
  EXPECT_THAT(textOf(findJob(runs(), "fashion").status()), HasSubstr("it holds no job; --runs"));
  const fs::path fashion = add("fashion"), other = add("other", "digits");
  fs::create_directories(runs() / "notes");
  EXPECT_THAT(listJobs(runs()), ElementsAre(fashion, other));
  EXPECT_THAT(listJobs(other), ElementsAre(other)) << "a run directory itself";
  EXPECT_EQ(findJob(runs(), "fashion").value(), fashion);
  EXPECT_EQ(findJob(runs(), "digits").value(), other) << "the name in the job";
  EXPECT_EQ(findJob("elsewhere", other.string() + "/").value(), other);
  EXPECT_THAT(textOf(findJob(runs(), "fashon").status()), HasSubstr("did you mean 'fashion'?"));
  EXPECT_THAT(textOf(findJob(runs(), "zzzzzzzz").status()), HasSubstr("trainyard get lists"));
  EXPECT_THAT(textOf(findJob(runs(), (runs() / "notes").string()).status()),
              HasSubstr("notes: is not a run directory"));
  EXPECT_THAT(textOf(findJob(runs(), "./nowhere").status()), HasSubstr("no such directory"));
  EXPECT_FALSE(findJob(runs(), "").ok());
  add("again", "digits");
  EXPECT_THAT(textOf(findJob(runs(), "digits").status()), HasSubstr("there are 2 jobs 'digits'"));
}

TEST_F(JobsTest, GetShowsThemAll) {
  EXPECT_EQ(run({"get"}), kExitOk);
  EXPECT_EQ(out_, "");
  EXPECT_THAT(err_, HasSubstr("No jobs found in "));
  const fs::path fashion = add("fashion");
  add("other");
  write(fashion / "metrics.jsonl", "{\"step\":5,\"loss\":0.5,\"time\":1}\n");
  EXPECT_EQ(run({"get"}), kExitOk);
  EXPECT_THAT(out_, HasSubstr("\nfashion  Interrupted  0/700  "));
  EXPECT_THAT(out_, HasSubstr("\nother    Interrupted  0/700  "));
  EXPECT_EQ(run({"get", "-o", "name"}), kExitOk);
  EXPECT_EQ(out_, "fashion\nother\n");
  EXPECT_EQ(run({"get", "other", "-o", "yaml"}), kExitOk);
  EXPECT_THAT(out_, HasSubstr("kind: TrainingJob\n"));
  EXPECT_EQ(run({"get", "-o", "json"}), kExitOk);
  EXPECT_EQ(nlohmann::json::parse(out_)["items"].size(), 2u);
  EXPECT_EQ(run({"get", "--runs", (root_.path() / "none").string()}), kExitUsage);
  EXPECT_EQ(run({"get", "nobody"}), kExitUsage);
  EXPECT_THAT(err_, HasSubstr("trainyard get: there is no job 'nobody' in "));
}

TEST_F(JobsTest, ADamagedRecordDoesNotHideTheOthers) {
  const fs::path fashion = add("fashion"), other = add("other");
  ASSERT_TRUE(writeFileAtomically(other / "job.json", "{]").ok());
  EXPECT_EQ(run({"get"}), kExitUsage);
  EXPECT_THAT(out_, HasSubstr("fashion"));
  EXPECT_THAT(err_, HasSubstr((other / "job.json").string()));
  EXPECT_EQ(run({"describe", "other"}), kExitUsage);
  EXPECT_EQ(run({"delete", "other", "--yes"}), kExitOk) << err_;
  EXPECT_FALSE(fs::exists(other));
}

TEST_F(JobsTest, SuspendingWhatRestsIsRecorded) {
  const fs::path fashion = add("fashion");
  EXPECT_EQ(run({"suspend", "fashion"}), kExitOk) << err_;
  EXPECT_THAT(out_, HasSubstr("fashion suspended at step 0 (nothing of it was running)"));
  EXPECT_EQ(readJob(fashion)->state, "Suspended");
  EXPECT_EQ(run({"suspend", "fashion"}), kExitOk);
  EXPECT_THAT(out_, HasSubstr("fashion is suspended already, at step 0"));
  const auto again = reopenRun(fashion.string(), systemClock());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_FALSE(again->job.spec().run_policy().suspend());
  EXPECT_THAT(again->headline, HasSubstr("starting 'fashion' again from step 0"));
  EXPECT_EQ(readJob(fashion)->state, "Starting");
  EXPECT_EQ(readJob(fashion)->launcher, ::getpid());
  EXPECT_TRUE(absl::IsFailedPrecondition(reopenRun(fashion.string(), systemClock()).status()));
}

TEST_F(JobsTest, AFinishedJobIsNeitherSuspendedNorResumed) {
  const fs::path fashion = add("fashion");
  control::RunRecord record(control::RunPaths{fashion});
  v1::JobStatus status;
  status.set_state("Succeeded");
  const std::string version = record.read()->metadata().resource_version();
  ASSERT_TRUE(record.writeStatus(version, status).ok());
  RunResult result;
  result.outcome = "succeeded";
  result.steps = 700;
  result.accuracy = 0.9;
  write(fashion / "result.json", resultJson(result).dump());
  EXPECT_EQ(run({"suspend", "fashion"}), kExitFailure);
  EXPECT_THAT(err_, HasSubstr("'fashion' has ended already: Succeeded"));
  EXPECT_EQ(run({"resume", "fashion"}), kExitUsage);
  EXPECT_THAT(err_, HasSubstr("'fashion' has finished already: 700 steps"));
  EXPECT_EQ(run({"get"}), kExitOk);
  EXPECT_THAT(out_, HasSubstr("Succeeded  700/700  0/2      0/2  -     0.9000"));
}

TEST_F(JobsTest, OnlyARunDirectoryIsDeleted) {
  const fs::path fashion = add("fashion");
  EXPECT_EQ(run({"delete", "fashion"}), kExitUsage);
  EXPECT_THAT(err_, HasSubstr("give --yes"));
  write(fashion / "thesis.tex", "x");
  EXPECT_EQ(run({"delete", "fashion", "--yes"}), kExitUsage);
  EXPECT_THAT(err_, HasSubstr("holds 'thesis.tex', which no run has made: nothing is deleted"));
  EXPECT_EQ(readJob(fashion)->state, "Interrupted") << "not even marked";
  fs::remove(fashion / "thesis.tex");
  // Being written as it is looked at, or left by a process that was killed.
  for (const char* file :
       {".status.json.a1B2c3", "checkpoints/ps-0.1.1.step-0.e1.safetensors.tmp",
        "checkpoints/.step-0.e1.json.a1B2c3", "events/.events.out.tfevents.1.job.a1B2c3"}) {
    fs::create_directories((fashion / file).parent_path());
    write(fashion / file, "x");
  }
  write(fashion / ".thesis.tex.a1B2c3", "x");
  EXPECT_EQ(run({"delete", "fashion", "--yes"}), kExitUsage);
  EXPECT_THAT(err_, HasSubstr("holds '.thesis.tex.a1B2c3', which no run has made"));
  fs::remove(fashion / ".thesis.tex.a1B2c3");
  EXPECT_EQ(run({"delete", "fashion", "--yes"}), kExitOk) << err_;
  EXPECT_EQ(out_, "fashion deleted\n");
  EXPECT_FALSE(fs::exists(fashion));
  EXPECT_EQ(run({"delete", "fashion", "--yes"}), kExitUsage);
  fs::create_directories(runs() / "empty");
  EXPECT_EQ(run({"delete", (runs() / "empty").string(), "--yes"}), kExitUsage);
  EXPECT_TRUE(fs::exists(runs() / "empty"));
}

TEST_F(JobsTest, ADeletionThatWasCutShortIsFinished) {
  const fs::path fashion = add("fashion");
  ASSERT_TRUE(control::RunRecord(control::RunPaths{fashion})
                  .edit(systemClock(),
                        [](v1::TrainingJob* job) {
                          job->mutable_metadata()->set_deletion_timestamp("2023-11-14T22:12:20Z");
                          return true;
                        })
                  .ok());
  EXPECT_EQ(readJob(fashion)->state, "Terminating");
  EXPECT_EQ(run({"resume", "fashion"}), kExitUsage);
  EXPECT_THAT(err_, HasSubstr("is being deleted"));
  EXPECT_EQ(run({"suspend", "fashion"}), kExitFailure);
  EXPECT_EQ(run({"delete", "fashion", "--yes"}), kExitOk) << err_;
  EXPECT_FALSE(fs::exists(fashion));
}

TEST_F(JobsTest, DeletingAsksWhereSomebodyCanAnswer) {
  const fs::path fashion = add("fashion");
  for (const char* answer : {"\n", "n\n", "y\n"}) {
    EXPECT_TRUE(fs::exists(fashion));
    std::ostringstream out, err;
    std::istringstream in(answer);
    Console console{out, err};
    console.runs_dir = runs().string();
    console.in = &in;
    EXPECT_EQ(runApp({"delete", "fashion"}, console), answer[0] == 'y' ? kExitOk : kExitFailure);
    EXPECT_THAT(out.str(), HasSubstr("[y/N]"));
  }
  EXPECT_FALSE(fs::exists(fashion));
}

TEST_F(JobsTest, LogsArePutTogetherByTime) {
  const fs::path fashion = add("fashion");
  EXPECT_EQ(run({"logs", "fashion"}), kExitOk);
  EXPECT_THAT(err_, HasSubstr("No log lines yet: 'fashion' is Interrupted."));
  write(fashion / "tasks/ps-0/task.log",
        "2026-01-31T13:05:09.100Z I ps-0: one\n2026-01-31T13:05:09.300Z I ps-0: three\nbelongs\n");
  write(fashion / "tasks/worker-0/task.log",
        "2026-01-31T13:05:09.200Z I worker-0: two\n"
        "{\"time\":\"2026-01-31T13:05:09.400Z\",\"task\":\"worker-0\"}\nhalf");
  EXPECT_EQ(run({"logs", "fashion"}), kExitOk);
  EXPECT_EQ("\n" + out_, R"(
[ps-0] 2026-01-31T13:05:09.100Z I one
[worker-0] 2026-01-31T13:05:09.200Z I two
[ps-0] 2026-01-31T13:05:09.300Z I three
[ps-0] belongs
{"time":"2026-01-31T13:05:09.400Z","task":"worker-0"}
[worker-0] half
)");
  EXPECT_EQ(run({"logs", "fashion", "ps-0", "--tail", "2"}), kExitOk);
  EXPECT_EQ(out_, "2026-01-31T13:05:09.300Z I ps-0: three\nbelongs\n");
  EXPECT_EQ(run({"logs", "fashion", "ps-0", "--tail", "0"}), kExitOk);
  EXPECT_EQ(out_, "");
  EXPECT_EQ(run({"logs", "fashion", "-f", "worker-0"}), kExitOk) << "nobody writes any more";
  EXPECT_THAT(out_, HasSubstr("two\n"));
  EXPECT_EQ(run({"logs", "fashion", "worker-7"}), kExitUsage);
  EXPECT_THAT(err_,
              HasSubstr("'fashion' has no task 'worker-7': it has ps-0 to ps-1 and worker-0"));
  EXPECT_EQ(run({"logs", "fashion", "--all", "--tail", "3"}), kExitUsage);
}

TEST_F(JobsTest, AJobWithoutServersHasWorkersOnly) {
  add("fashion", "fashion", {{{"strategy", "AllReduce"}, {"ps", ""}}});
  EXPECT_EQ(run({"logs", "fashion", "ps-0"}), kExitUsage);
  EXPECT_THAT(err_, HasSubstr("'fashion' has no task 'ps-0': it has worker-0"));
  EXPECT_THAT(err_, testing::Not(HasSubstr("ps--1")));
}

TEST_F(JobsTest, ATaskWithoutTailShowsItsLastTenLines) {
  const fs::path fashion = add("fashion");
  std::string text;
  for (int i = 0; i < 25; ++i) text += fmt::format("line {}\n", i);
  write(fashion / "tasks/ps-1/task.log", text);
  EXPECT_EQ(run({"logs", "fashion"}), kExitOk);
  EXPECT_THAT(out_, testing::StartsWith("[ps-1] line 15\n"));
  EXPECT_THAT(out_, testing::EndsWith("[ps-1] line 24\n"));
  EXPECT_EQ(run({"logs", "fashion", "--all"}), kExitOk);
  EXPECT_THAT(out_, testing::StartsWith("[ps-1] line 0\n"));
}

TEST_F(JobsTest, AFileIsFollowedOverItsReplacement) {
  const fs::path path = root_.path() / "log";
  GrowingFile file(path, std::nullopt);
  EXPECT_EQ(file.next(), std::nullopt);
  write(path, "one\ntw");
  EXPECT_EQ(file.next(), "one");
  EXPECT_EQ(file.next(), std::nullopt);
  write(path, "o\n");
  EXPECT_EQ(file.next(), "two");
  ASSERT_TRUE(writeFileAtomically(path, "anew\n").ok());
  EXPECT_EQ(file.next(), "anew");
  EXPECT_EQ(file.next(), std::nullopt);
  fs::resize_file(path, 0);
  EXPECT_EQ(file.next(), std::nullopt);
  write(path, "x\nrest");
  EXPECT_EQ(file.next(), "x");
  EXPECT_EQ(file.next(), std::nullopt);
  EXPECT_EQ(file.rest(), "rest");
  EXPECT_EQ(file.rest(), std::nullopt);
}

TEST_F(JobsTest, TheTailOfALongFile) {
  const fs::path path = root_.path() / "log";
  std::string text;
  for (int i = 0; i < 20000; ++i) text += fmt::format("line {}\n", i);  // several blocks
  write(path, text);
  for (const std::int64_t lines : {1, 3, 9000, 19999, 20000, 50000}) {
    GrowingFile file(path, lines);
    EXPECT_EQ(file.next(), fmt::format("line {}", std::max<std::int64_t>(0, 20000 - lines)));
  }
  write(path, "unfinished");
  EXPECT_EQ(GrowingFile(path, 2).next(), "line 19999");
}

TEST(ClosestWordTest, IsNearOrNothing) {
  EXPECT_EQ(closestWord("fashon", {"digits", "fashion"}), "fashion");
  EXPECT_EQ(closestWord("zebra", {"digits", "fashion"}), "");
}

}  // namespace
}  // namespace trainyard::cli
