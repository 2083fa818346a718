#include "operator/local/local_cluster.h"

#include <signal.h>

#include <algorithm>
#include <fstream>

#include "base/process/files.h"
#include "base/process/poll.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/operator/local/local_run.h"

namespace trainyard::control {
namespace {

constexpr TaskKey kPs0{v1::ROLE_PS, 0};
constexpr TaskKey kWorker0{v1::ROLE_WORKER, 0};

std::optional<TaskObservation> find(LocalRun& run, const TaskKey& key) {
  const JobObservation seen = run.cluster().observe(run.key()).value();
  for (const TaskObservation& task : seen.tasks) {
    if (task.key == key) return task;
  }
  return std::nullopt;
}

TEST(LocalClusterTest, NobodyIsLeftAfterTheEnd) {
  LocalRun run;
  run.open();
  ASSERT_TRUE(run.cluster().createTask(run.job(), kPs0, 1).ok());
  ASSERT_TRUE(run.cluster().createTask(run.job(), kWorker0, 1).ok());
  const int ps = run.pidOf(kPs0);
  const int worker = run.pidOf(kWorker0);
  run.command(kWorker0, "deaf");
  ASSERT_TRUE(LocalRun::eventually([&] { return find(run, kWorker0)->ready; }));
  const TimePoint before = systemClock().now();
  run.close();
  EXPECT_LT(systemClock().now() - before, std::chrono::seconds(5));
  EXPECT_FALSE(LocalRun::lives(ps));
  EXPECT_FALSE(LocalRun::lives(worker)) << "a task that ignores SIGTERM is killed";
}

TEST(LocalClusterTest, DeletedTaskThatIgnoresSigtermIsKilledAfterTheGrace) {
  LocalRun run;
  run.open(std::chrono::milliseconds(100));
  ASSERT_TRUE(run.cluster().createTask(run.job(), kWorker0, 1).ok());
  const int pid = run.pidOf(kWorker0);
  run.command(kWorker0, "deaf");
  ASSERT_TRUE(LocalRun::eventually([&] { return find(run, kWorker0)->ready; }));
  ASSERT_TRUE(run.cluster().deleteTask(run.job(), kWorker0, 1).ok());
  EXPECT_TRUE(find(run, kWorker0)->terminating);
  EXPECT_TRUE(LocalRun::eventually([&] { return !find(run, kWorker0); }));
  EXPECT_FALSE(LocalRun::lives(pid));
}

TEST(LocalClusterTest, WhoWaitsForTheEndHearsOfItAtOnce) {
  LocalRun run;
  run.open();
  ASSERT_TRUE(run.cluster().createTask(run.job(), kPs0, 1).ok());
  ASSERT_TRUE(run.cluster().createTask(run.job(), kWorker0, 1).ok());
  (void)run.pidOf(kPs0);
  const int worker = run.pidOf(kWorker0);
  run.cluster().clearRest();
  ASSERT_EQ(::kill(worker, SIGKILL), 0);
  ASSERT_TRUE(LocalRun::eventually([&] { return find(run, kWorker0)->exit.has_value(); }));
  EXPECT_FALSE(waitReadable(run.cluster().restFd(), systemClock().now())) << "ps-0 runs";
  run.cluster().killAll();
  EXPECT_TRUE(waitReadable(run.cluster().restFd(), systemClock().now() + std::chrono::seconds(30)));
  EXPECT_TRUE(run.cluster().idle());
  run.cluster().clearRest();
  EXPECT_FALSE(waitReadable(run.cluster().restFd(), systemClock().now()));
}

TEST(LocalClusterTest, KillAllEndsEveryTaskAtOnce) {
  LocalRun run;
  run.open();
  ASSERT_TRUE(run.cluster().createTask(run.job(), kPs0, 1).ok());
  run.pidOf(kPs0);
  run.cluster().killAll();
  EXPECT_TRUE(LocalRun::eventually([&] { return run.cluster().idle(); }));
  EXPECT_EQ(find(run, kPs0)->exit->signal, SIGKILL);
}

TEST(LocalClusterTest, TheNextLauncherEndsWhatTheLastOneLeft) {
  LocalRun run;
  run.open();
  // A process with the task's folder among its arguments, as an agent whose launcher has gone.
  const std::string task_dir = run.paths().task(kPs0).string();
  ASSERT_TRUE(makeDirectories(run.paths().task(kPs0)).ok());
  SpawnOptions spawn;
  spawn.argv = {"/bin/sh", "-c", "read never < /dev/zero; :", "agent", task_dir};
  auto left = ChildProcess::spawn(spawn);
  ASSERT_TRUE(left.ok()) << left.status();
  run.close();
  const std::string text = "{\"pid\": " + std::to_string(left->pid()) + "}";
  ASSERT_TRUE(writeFileAtomically(run.paths().agent(kPs0), text).ok());
  run.open();
  const auto ended = left->wait(systemClock().now() + std::chrono::seconds(10));
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_EQ(ended->signal, SIGKILL);
  EXPECT_FALSE(std::filesystem::exists(run.paths().agent(kPs0)));
}

TEST(LocalClusterTest, AProcessThatIsNotOfTheTaskIsLeftAlone) {
  LocalRun run;
  ASSERT_TRUE(makeDirectories(run.paths().task(kPs0)).ok());
  SpawnOptions spawn;
  spawn.argv = {"/bin/sh", "-c", "read never < /dev/zero; :", "somebody", "else"};
  auto other = ChildProcess::spawn(spawn);
  ASSERT_TRUE(other.ok()) << other.status();
  const std::string text = "{\"pid\": " + std::to_string(other->pid()) + "}";
  ASSERT_TRUE(writeFileAtomically(run.paths().agent(kPs0), text).ok());
  run.open();
  EXPECT_FALSE(other->poll().value().has_value());
}

// The poller asks twice a second; what is said after that stands in the task's folder.
TEST(LocalClusterTest, TellsWhatTheCoordinatorOfATaskThatEndedSaidLast) {
  const auto lastStepOf = [](int created, int start) {
    LocalRun run;
    run.open();
    EXPECT_TRUE(run.cluster().createTask(run.job(), kPs0, 2).ok());
    run.pidOf(kPs0);
    const std::string report = fmt::format(
        R"({{"incarnation": {{"created": {}, "start": {}}}, "job": {{"step": "120", "lostSteps": "60"}}}})",
        created, start);
    EXPECT_TRUE(writeFileAtomically(run.paths().lastReport(kPs0), report).ok());
    EXPECT_FALSE(find(run, kPs0)->last_word.has_value()) << "it has not ended";
    run.command(kPs0, "exit 0");
    EXPECT_TRUE(LocalRun::eventually([&] { return find(run, kPs0)->exit.has_value(); }));
    const auto word = find(run, kPs0)->last_word;
    return word ? word->step() + word->lost_steps() : 0;
  };
  EXPECT_EQ(lastStepOf(2, 1), 180);
  EXPECT_EQ(lastStepOf(1, 1), 0) << "of an earlier life";
  EXPECT_EQ(lastStepOf(2, 0), 0) << "of a program before the last one";
}

TEST(LocalClusterTest, CauseNamesTheLastErrorOfTheLog) {
  LocalRun run;
  run.open();
  ASSERT_TRUE(run.cluster().createTask(run.job(), kWorker0, 1).ok());
  run.pidOf(kWorker0);
  std::ofstream(run.paths().taskLog(kWorker0), std::ios::app)
      << "2026-01-31T13:05:09.123Z E worker-0: data.images: /nowhere: No such file\n"
      << "2026-01-31T13:05:09.124Z I worker-0: stopping\n";
  run.command(kWorker0, "exit 3");
  ASSERT_TRUE(LocalRun::eventually([&] { return find(run, kWorker0)->exit.has_value(); }));
  EXPECT_EQ(find(run, kWorker0)->exit->cause, "exit code 3: data.images: /nowhere: No such file");
}

// The machine's cores are one worker's as much as another's.
TEST(LocalClusterTest, AgentsOfWorkersHearHowManyShareTheMachine) {
  LocalRun run;
  run.open();
  const v1::TrainingJob job = run.job();
  const auto command = [&](const TaskKey& task) {
    EXPECT_TRUE(run.cluster().createTask(job, task, 1).ok());
    const std::string file = fmt::format("/proc/{}/cmdline", run.pidOf(task));
    std::string words = readFile(file, 1 << 20).value_or("");
    std::replace(words.begin(), words.end(), '\0', ' ');
    return words;
  };
  EXPECT_THAT(command({v1::ROLE_WORKER, 1}), testing::HasSubstr("--workers-here 2 "));
  EXPECT_EQ(command(kPs0).find("--workers-here"), std::string::npos);
}

TEST(LocalClusterTest, AgentsAndTokenForTheProgressPoller) {
  LocalRun run;
  run.open();
  EXPECT_TRUE(run.cluster().agents(run.key()).value().empty());
  ASSERT_TRUE(run.cluster().createTask(run.job(), kPs0, 5).ok());
  ASSERT_TRUE(
      LocalRun::eventually([&] { return run.cluster().agents(run.key()).value().size() == 1; }));
  const AgentEndpoint agent = run.cluster().agents(run.key()).value()[0];
  EXPECT_EQ(agent.key, kPs0);
  EXPECT_EQ(agent.created, 5u);
  EXPECT_EQ(agent.address, "127.0.0.1:20101");
  EXPECT_EQ(run.cluster().token(run.key()).value(), std::string(64, 'a'));
}

TEST(LocalClusterTest, SuspendIsAnEditOfTheRecord) {
  LocalRun run;
  run.open();
  const v1::TrainingJob before = run.job();
  ASSERT_TRUE(run.cluster().setSuspend(true).ok());
  const v1::TrainingJob after = run.job();
  EXPECT_TRUE(after.spec().run_policy().suspend());
  EXPECT_EQ(after.metadata().generation(), before.metadata().generation() + 1);
  EXPECT_EQ(run.cluster().writeStatus(before, v1::JobStatus()).code(),
            absl::StatusCode::kFailedPrecondition);
}

// The wrapper stands before the agent's own command line, and goes by exec: the agent is the
// process that was started.
TEST(LocalClusterTest, AgentsStartThroughAWrapperAndListenWhereTheyAreTold) {
  LocalRun run;
  TaskPlaces places;
  places.wrapper = {"env", "PLACE=net-{task}-{task}"};
  places.addresses[kWorker0] = "10.0.0.7";
  run.open(std::chrono::seconds(10), places);
  ASSERT_TRUE(run.cluster().createTask(run.job(), kPs0, 1).ok());
  ASSERT_TRUE(run.cluster().createTask(run.job(), kWorker0, 1).ok());
  const auto seen = [](int pid, const char* file) {
    return readFile(fmt::format("/proc/{}/{}", pid, file), 1 << 20).value_or("");
  };
  const auto bind = [](const std::string& address) {
    using std::string_literals::operator""s;
    return "--bind\0"s + address + "\0"s;
  };
  const int ps = run.pidOf(kPs0), worker = run.pidOf(kWorker0);
  EXPECT_THAT(seen(worker, "environ"), testing::HasSubstr("PLACE=net-worker-0-worker-0"));
  EXPECT_THAT(seen(worker, "cmdline"), testing::HasSubstr(bind("10.0.0.7")));
  EXPECT_THAT(seen(ps, "environ"), testing::HasSubstr("PLACE=net-ps-0-ps-0"));
  EXPECT_THAT(seen(ps, "cmdline"), testing::HasSubstr(bind("127.0.0.1")));
}

TEST(LocalClusterTest, AnAgentThatCannotStartIsNamed) {
#ifdef TRAINYARD_TSAN
  GTEST_SKIP() << "the thread sanitizer turns vfork into fork, which does not say why exec failed";
#endif
  LocalRun run;
  LocalClusterOptions options;
  options.dir = run.paths().dir.string();
  options.agent_path = "/nowhere/trainyard-agent";
  auto cluster = LocalCluster::open(options, systemClock());
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const Status status = (*cluster)->createTask(run.job(), kPs0, 1);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("/nowhere/trainyard-agent"));
}

}  // namespace
}  // namespace trainyard::control
