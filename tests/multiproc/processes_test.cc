// Workers of several processes: each is a rank of its own, those of one worker live and die
// together, and what they train is what as many workers of one process train.
#include <signal.h>

#include <map>
#include <set>

#include "base/process/files.h"
#include "fmt/format.h"
#include "tests/multiproc/run_fixture.h"

namespace trainyard {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr int kProcessesSteps = 120;
constexpr int kProcessesBatch = 16;  // of smallJob()
// Somebody is killed within step 21: between a step's end and the line that tells of it, the line
// would be lost and the step would not.
constexpr auto kLongStep = "worker.compute=delay(600000)@21,task=worker-1.1,life=1.1";

std::vector<std::string> ringOf(int processes, std::vector<std::string> more = {}) {
  std::vector<std::string> flags = {"--set", "strategy=AllReduce",
                                    "--set", "ps=",
                                    "--set", fmt::format("worker.processesPerPod={}", processes)};
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

// Folders of the processes of `workers` workers.
std::vector<std::string> foldersOf(int workers, int processes) {
  std::vector<std::string> folders;
  for (int rank = 0; rank < workers * processes; ++rank) {
    folders.push_back(fmt::format("worker-{}/process-{}", rank / processes, rank % processes));
  }
  return folders;
}

class ProcessesTest : public RunTest {
 protected:
  // Of as many workers of one process each.
  static std::string digestOf(int workers) {
    return undisturbedDigest(smallJob(1, workers, kProcessesSteps), ringOf(1));
  }
  void expectSameEnd(const JobRun& run, const ProgramEnd& end, int workers, int processes) {
    EXPECT_EQ(end.code, 0);
    EXPECT_THAT(end.lastLine(),
                StartsWith(fmt::format("result: succeeded steps={} ", kProcessesSteps)));
    const int ranks = workers * processes;
    expectEachPositionOnce(run, foldersOf(workers, processes),
                           kProcessesSteps * ranks * kProcessesBatch);
    EXPECT_EQ(run.digest(), digestOf(ranks));
    if (HasFailure()) run.printLogs();
  }
  static nlohmann::json statusOf(const JobRun& run) { return run.json("status.json").at("status"); }
  static std::vector<pid_t> pidsOf(const JobRun& run, const std::string& task) {
    std::vector<pid_t> pids;
    const auto known = [&] {
      const nlohmann::json file = run.agent(task);
      if (file.is_object()) pids = file.value("childPids", std::vector<pid_t>());
      return !pids.empty();
    };
    EXPECT_TRUE(eventually(known, std::chrono::seconds(60))) << task;
    return pids;
  }
};

TEST_F(ProcessesTest, ThreeInOneWorkerTrainAsThreeWorkersDo) {
  JobRun run(folder("one"), smallJob(1, 1, kProcessesSteps), ringOf(3));
  expectSameEnd(run, run.launchAndWait(), 1, 3);
  const std::string log = run.taskLog("worker-0");
  for (const char* name : {"worker-0.0: ", "worker-0.1: ", "worker-0.2: "}) {
    EXPECT_THAT(log, HasSubstr(name));
  }
  EXPECT_THAT(log, HasSubstr("with 3 workers"));
}

// Each rank is a process in the picture, with its steps and what it did with the others.
TEST_F(ProcessesTest, TheTimelineShowsAllRanks) {
  JobRun run(folder("traced"), smallJob(1, 1, 20), ringOf(2, {"--timeline"}));
  ASSERT_EQ(run.launchAndWait().code, 0);
  std::string text = readFile(run.dir() / "timeline.json", 16 << 20).value_or("");
  ASSERT_TRUE(text.ends_with(",\n")) << text;
  text.replace(text.size() - 2, 2, "]");
  const auto events = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(events.is_array()) << text;
  std::map<std::string, std::set<int>> steps;  // of each kind of span of each process
  std::map<int, std::string> names;
  for (const nlohmann::json& event : events) {
    const int pid = event.at("pid");
    const std::string name = event.at("name");
    if (name == "process_name") names[pid] = event.at("args").at("name");
    if (event.at("ph") == "X")
      steps[names[pid] + " " + name].insert(event.at("args").value("step", -1));
  }
  for (const std::string process : {"worker-0.0", "worker-0.1"}) {
    for (const std::string name : {"data", "compute", "wait", "bucket 0", "loss and samples"}) {
      EXPECT_GE(steps[process + " " + name].size(), 20u) << process << " " << name;
    }
    EXPECT_EQ(steps[process + " broadcast"].size(), 1u);
    EXPECT_EQ(steps[process + " evaluate"], std::set<int>{20});
  }
}

TEST_F(ProcessesTest, TwoInEachOfTwoWorkersTrainAsFourWorkersDo) {
  JobRun shared(folder("shared"), smallJob(1, 2, kProcessesSteps), ringOf(2));
  expectSameEnd(shared, shared.launchAndWait(), 2, 2);
  JobRun apart(
      folder("apart"), smallJob(1, 2, kProcessesSteps),
      ringOf(2, {"--task-address", "worker-0=127.0.0.1", "--task-address", "worker-1=127.0.0.2"}));
  expectSameEnd(apart, apart.launchAndWait("worker.push=delay(5)@20-40,task=worker-1.0"), 2, 2);
}

// Two hosts of two ranks each: those of a host share memory, and who dies on one is named on the
// other. The bits are not those of four workers: what memory adds is added first.
TEST_F(ProcessesTest, HostsOfTwoEach) {
  JobRun run(folder("hosts"), smallJob(1, 2, kProcessesSteps),
             ringOf(2, {"--task-address", "worker-0=127.0.0.1", "--task-address",
                        "worker-1=127.0.0.2", "--set", "training.deterministic=false"}));
  run.launch(kLongStep);
  for (const std::string& folder : foldersOf(2, 2)) ASSERT_TRUE(run.reaches(folder, 20));
  const std::vector<pid_t> before = pidsOf(run, "worker-1");
  ASSERT_EQ(before.size(), 2u);
  ASSERT_EQ(::kill(before[1], SIGKILL), 0);
  const ProgramEnd end = run.wait();
  EXPECT_EQ(end.code, 0);
  EXPECT_THAT(end.lastLine(),
              StartsWith(fmt::format("result: succeeded steps={} ", kProcessesSteps)));
  expectEachPositionOnce(run, foldersOf(2, 2), kProcessesSteps * 4 * kProcessesBatch);
  const std::string log = run.taskLog("worker-0");
  EXPECT_THAT(log, HasSubstr("through the memory of each of 2 hosts"));
  EXPECT_THAT(log, HasSubstr(" is worker-1."));
  EXPECT_EQ(statusOf(run).value("restarts", 0), 1);
  EXPECT_EQ(statusOf(run).value("lostSteps", 0), 0);
  if (HasFailure()) run.printLogs();
}

// Its worker starts again as a whole, in place, and that is one restart; the others name who died.
TEST_F(ProcessesTest, OneThatDiesTakesItsWorkerAlong) {
  constexpr Duration kNoticed = std::chrono::seconds(30);  // an operation may take 10 minutes
  JobRun run(folder("killed"), smallJob(1, 2, kProcessesSteps), ringOf(2));
  run.launch(kLongStep);
  for (const std::string& folder : foldersOf(2, 2)) ASSERT_TRUE(run.reaches(folder, 20));
  const std::vector<pid_t> before = pidsOf(run, "worker-1");
  ASSERT_EQ(before.size(), 2u);
  ASSERT_EQ(::kill(before[1], SIGKILL), 0);
  const auto named = [&] {
    return run.taskLog("worker-0").find(" is worker-1.") != std::string::npos;
  };
  EXPECT_TRUE(eventually(named, kNoticed));
  expectSameEnd(run, run.wait(), 2, 2);
  EXPECT_EQ(run.agent("worker-1").value("start", 0), 2);
  EXPECT_EQ(run.agent("worker-0").value("start", 0), 1);
  EXPECT_EQ(statusOf(run).value("restarts", 0), 1);
  EXPECT_EQ(statusOf(run).value("lostSteps", 0), 0);
  const std::string log = run.taskLog("worker-1");
  EXPECT_THAT(log, ContainsRegex("worker-1.1: process [0-9]+ ended: killed by signal 9"));
  EXPECT_THAT(log, HasSubstr("kills the other processes of the task"));
}

// Its processes end together, and nobody holds the state any more: back to the last checkpoint.
TEST_F(ProcessesTest, TheOnlyWorkerMayLoseOne) {
  JobRun run(folder("killed"), smallJob(1, 1, kProcessesSteps), ringOf(3));
  const ProgramEnd end = run.launchAndWait("worker.compute=crash@60,task=worker-0.2,life=1.1");
  expectSameEnd(run, end, 1, 3);
  EXPECT_EQ(run.agent("worker-0").value("start", 0), 2);
  EXPECT_EQ(statusOf(run).value("restarts", 0), 1);
}

// A restart would not mend it: the job fails once, by name, and none is killed for it.
TEST_F(ProcessesTest, WhatNoRestartMendsEndsTheJob) {
  JobRun run(folder("nan"), smallJob(1, 2, kProcessesSteps), ringOf(2));
  const ProgramEnd end = run.launchAndWait("worker.gradient=nan@30,task=worker-0.1");
  EXPECT_NE(end.code, 0);
  EXPECT_THAT(end.output, HasSubstr("worker-0.1: step 30"));
  EXPECT_EQ(run.agent("worker-0").value("start", 0), 1);
  EXPECT_EQ(statusOf(run).value("restarts", 0), 0);
}

TEST_F(ProcessesTest, WorkersComeWithAllTheirProcesses) {
  JobRun run(folder("scaled"), smallJob(1, 1, 100'000), ringOf(2));
  run.launch("worker.compute=delay(50)");
  ASSERT_TRUE(run.reaches("worker-0/process-1", 3));
  const std::vector<pid_t> before = pidsOf(run, "worker-0");
  const ProgramEnd scaled =
      program({"trainyard", "scale", run.dir().string(), "--workers", "2", "--timeout", "240"});
  ASSERT_EQ(scaled.code, 0) << scaled.output;
  ASSERT_TRUE(run.reaches("worker-1/process-0", 3));
  ASSERT_TRUE(run.reaches("worker-1/process-1", 3));
  EXPECT_EQ(pidsOf(run, "worker-0"), before);
  ASSERT_TRUE(run.launcher().signal(SIGINT).ok());
  EXPECT_EQ(run.wait().code, 130);
  EXPECT_EQ(statusOf(run).value("restarts", 0), 0);
  EXPECT_EQ(statusOf(run).value("lostSteps", 0), 0);
  const std::vector<std::string> folders = foldersOf(2, 2);
  const auto end = static_cast<std::int64_t>(usesOfPositions(run, folders).size());
  EXPECT_GT(end, run.checkpointSteps().back() * 2 * kProcessesBatch);
  expectEachPositionOnce(run, folders, end);
}

TEST_F(ProcessesTest, ParameterServersWantWorkersOfOneProcess) {
  JobRun run(folder("refused"), smallJob(1, 2, kProcessesSteps),
             {"--set", "worker.processesPerPod=2"});
  const ProgramEnd end = run.launchAndWait();
  EXPECT_NE(end.code, 0);
  EXPECT_THAT(end.output,
              HasSubstr("spec.worker.processesPerPod: 2 with strategy ParameterServer is not in"));
}

// Programs of the user's own are told their places, and their lines say whose they are.
TEST_F(ProcessesTest, ProgramsAreToldTheirRanks) {
  const std::string yaml = R"Y(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: own}
spec:
  strategy: AllReduce
  worker:
    replicas: 2
    processesPerPod: 2
    template: {spec: {containers: [{name: task, command: [sh, -c,
      'echo rank $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE here; echo again >&2']}]}}
  runPolicy: {successPolicy: AllWorkers}
)Y";
  JobRun run(folder("own"), yaml);
  const ProgramEnd end = run.launchAndWait();
  EXPECT_EQ(end.code, 0) << end.output;
  for (int rank = 0; rank < 4; ++rank) {
    const std::string name = fmt::format("worker-{}.{}: ", rank / 2, rank % 2);
    const std::string log = run.taskLog(fmt::format("worker-{}", rank / 2));
    EXPECT_THAT(log, HasSubstr(fmt::format("\n{}rank {} of 4, {} of 4 here\n", name, rank, rank)));
    EXPECT_THAT(log, HasSubstr("\n" + name + "again\n"));
    EXPECT_THAT(log, Not(HasSubstr("\nrank ")));
  }
}

}  // namespace
}  // namespace trainyard
