// Local jobs looked after from elsewhere: run --detach, get, logs -f, suspend, resume and delete on
// real processes. A deterministic job that is stopped on its way ends with the weights of the one
// that was not.
#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>

#include "base/process/files.h"
#include "base/process/unique_fd.h"
#include "fmt/format.h"
#include "tests/multiproc/run_fixture.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;
using testing::AnyOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr int kControlSteps = 200;
constexpr Duration kControlLimit = std::chrono::seconds(90);

bool accepts(int port) {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
}

class ControlTest : public RunTest {
 protected:
  // The digest of the undisturbed job, from a run of its own, once for all tests.
  static std::string undisturbed() {
    static const std::string digest = [] {
      TempDir dir;
      JobRun run(dir.path(), smallJob(2, 2, kControlSteps));
      EXPECT_EQ(run.launchAndWait().code, 0);
      return run.digest();
    }();
    return digest;
  }

  ProgramEnd verb(const std::string& name, const JobRun& run, std::vector<std::string> more = {},
                  const std::string& failpoints = "") {
    std::vector<std::string> argv = {"trainyard", name, run.dir().string()};
    argv.insert(argv.end(), more.begin(), more.end());
    return program(argv, failpoints);
  }
  // The same, without waiting for it.
  ChildProcess start(const std::string& name, const JobRun& run, const std::string& output,
                     std::vector<std::string> more = {}) {
    SpawnOptions spawn;
    spawn.argv = {programPath("trainyard"), name, run.dir().string()};
    spawn.argv.insert(spawn.argv.end(), more.begin(), more.end());
    spawn.output_file = (root() / output).string();
    spawn.die_with_spawning_thread = true;
    return ChildProcess::spawn(spawn).value();
  }
  static int codeOf(ChildProcess& process) {
    const auto exit = process.wait(systemClock().now() + kControlLimit);
    EXPECT_TRUE(exit.ok()) << exit.status();
    return exit.ok() && exit->signal == 0 ? exit->code : -1;
  }
  std::string textOf(const std::string& output) {
    return readFile(root() / output, 1 << 20).value_or("");
  }
  ProgramEnd detach(const JobRun& run, const std::string& yaml,
                    const std::string& failpoints = "") {
    const fs::path file = writeText("detached.yaml", yaml);
    return program(
        {"trainyard", "run", "-f", file.string(), "--dir", run.dir().string(), "--detach"},
        failpoints);
  }
  nlohmann::json get(const JobRun& run) {
    const ProgramEnd end = verb("get", run, {"-o", "json"});
    EXPECT_EQ(end.code, 0) << end.output;
    return nlohmann::json::parse(end.output, nullptr, /*allow_exceptions=*/false);
  }
  std::string stateOf(const JobRun& run) {
    const nlohmann::json job = get(run);
    return job.is_object() ? job.at("status").value("state", "") : "";
  }
  pid_t launcherOf(const JobRun& run) {
    const nlohmann::json job = get(run);
    const bool has = job.is_object() && job.at("run").at("launcher").is_number();
    return has ? job.at("run").at("launcher").get<pid_t>() : 0;
  }
  Waited becomes(const JobRun& run, const std::string& state) {
    return eventually([&] { return stateOf(run) == state; }, kControlLimit);
  }
  static Waited nobodyRuns(const JobRun& run) {
    return eventually([&] { return processesWith(run.dir().string()).empty(); },
                      std::chrono::seconds(15));
  }
  // Beyond the checkpoint from which it went on.
  static Waited goesOn(const JobRun& run, std::int64_t from) {
    return eventually(
        [&] {
          const std::vector<PositionRecord> records = run.positions("worker-0");
          return !records.empty() && records.back().step >= from + 5;
        },
        kControlLimit);
  }
};

TEST_F(ControlTest, AJobSuspendedAgainAndAgainEndsWithTheSameWeights) {
  JobRun run(folder("job"), smallJob(2, 2, kControlSteps));
  run.launch(run.slowSteps(20));
  ASSERT_TRUE(run.reaches("worker-0", 20));
  // From elsewhere, under a launcher in the foreground.
  ProgramEnd end = verb("suspend", run);
  ASSERT_EQ(end.code, 0) << end.output;
  std::int64_t stopped = run.newestCheckpoint();
  EXPECT_GE(stopped, 20);
  EXPECT_EQ(end.lastLine(), fmt::format("run suspended at step {}", stopped));
  ProgramEnd foreground = run.wait();
  EXPECT_EQ(foreground.code, 0);
  EXPECT_THAT(foreground.lastLine(),
              StartsWith(fmt::format("result: suspended step={} ", stopped)));
  EXPECT_THAT(foreground.output, ContainsRegex("to go on: .*trainyard resume "));
  EXPECT_TRUE(processesWith(run.dir().string()).empty());
  EXPECT_EQ(stateOf(run), "Suspended");
  EXPECT_EQ(verb("suspend", run).code, 0) << "it is so already";

  // No launcher is there: one is started in the background.
  end = verb("resume", run, {}, run.slowSteps());
  ASSERT_EQ(end.code, 0) << end.output;
  EXPECT_THAT(end.output, HasSubstr(fmt::format("resuming 'small' from step {} ", stopped)));
  EXPECT_THAT(end.lastLine(), StartsWith("detached: process="));
  ASSERT_TRUE(goesOn(run, stopped));
  // The wish is taken back while the job stops, or just before, or just after.
  ASSERT_EQ(verb("suspend", run, {"--no-wait"}).code, 0);
  end = verb("resume", run, {}, run.slowSteps());
  ASSERT_EQ(end.code, 0) << end.output;
  ASSERT_TRUE(goesOn(run, run.newestCheckpoint()));

  end = verb("suspend", run);
  ASSERT_EQ(end.code, 0) << end.output;
  stopped = run.newestCheckpoint();
  EXPECT_LT(stopped, kControlSteps) << "the job was too fast for this test";
  ASSERT_EQ(verb("resume", run).code, 0);
  ChildProcess logs = start("logs", run, "logs", {"-f"});
  EXPECT_EQ(codeOf(logs), 0) << "it ends with the job";
  EXPECT_THAT(textOf("logs"), HasSubstr("[launcher] result: succeeded"));
  EXPECT_EQ(stateOf(run), "Succeeded");
  EXPECT_EQ(run.digest(), undisturbed());
  expectEachPositionOnce(run, 2, kControlSteps * 2 * 16);
  EXPECT_EQ(verb("suspend", run).code, 1);
  EXPECT_NE(verb("resume", run).code, 0);
}

TEST_F(ControlTest, AnInterruptedJobIsShownAsSuchAndResumes) {
  JobRun run(folder("job"), smallJob(2, 2, kControlSteps));
  const std::string yaml = smallJob(2, 2, kControlSteps);
  ProgramEnd end = detach(run, yaml, run.slowSteps());
  ASSERT_EQ(end.code, 0) << end.output;
  ASSERT_TRUE(goesOn(run, 0));
  const pid_t launcher = launcherOf(run);
  ASSERT_GT(launcher, 1);
  EXPECT_THAT(end.lastLine(), StartsWith(fmt::format("detached: process={} ", launcher)));
  EXPECT_NE(::getsid(launcher), ::getsid(0)) << "a terminal's hang-up does not reach it";
  ASSERT_EQ(::kill(launcher, SIGKILL), 0);
  ASSERT_TRUE(nobodyRuns(run));
  EXPECT_EQ(stateOf(run), "Interrupted");
  EXPECT_THAT(verb("describe", run).output, Not(ContainsRegex("worker-0 +Ready")));
  end = verb("suspend", run);
  EXPECT_EQ(end.code, 0) << end.output;
  EXPECT_THAT(end.output, HasSubstr("nothing of it was running"));
  EXPECT_EQ(stateOf(run), "Suspended");
  // Two at once: one of them starts the launcher, both find the job running or done.
  ChildProcess other = start("resume", run, "resume");
  end = verb("resume", run);
  const int code = codeOf(other);
  EXPECT_TRUE(code == 0 || stateOf(run) == "Succeeded") << textOf("resume");
  EXPECT_TRUE(end.code == 0 || stateOf(run) == "Succeeded") << end.output;
  ASSERT_TRUE(becomes(run, "Succeeded"));
  ASSERT_TRUE(nobodyRuns(run));
  EXPECT_EQ(run.digest(), undisturbed());
}

TEST_F(ControlTest, ADetachedJobThatCannotStartSaysWhy) {
  JobRun run(folder("job"), "");
  std::string yaml = smallJob(1, 1, 10);
  const std::string data = "data: {format: synthetic";
  const std::size_t at = yaml.find(data);
  yaml.replace(at, yaml.find('\n', at) - at,
               "data: {format: idx, images: nowhere-images, labels: nowhere-labels}");
  const ProgramEnd end = detach(run, yaml);
  EXPECT_EQ(end.code, 1) << end.output;
  EXPECT_THAT(end.lastLine(), StartsWith("result: failed reason="));
  EXPECT_THAT(end.lastLine(), HasSubstr("nowhere-"));
  EXPECT_EQ(stateOf(run), "Failed");
  EXPECT_TRUE(nobodyRuns(run));
}

TEST_F(ControlTest, AJobSuspendedWhileItStartsRestsAndResumes) {
  JobRun run(folder("job"), smallJob(2, 2, kControlSteps));
  run.launch(run.slowSteps());
  ASSERT_TRUE(eventually([&] { return fs::exists(run.dir() / "job.json"); }, kControlLimit));
  EXPECT_GT(launcherOf(run), 0);
  ProgramEnd end = verb("suspend", run);
  ASSERT_EQ(end.code, 0) << end.output << run.output();
  end = run.wait();
  EXPECT_EQ(end.code, 0);
  EXPECT_THAT(end.lastLine(), StartsWith("result: suspended step="));
  EXPECT_TRUE(processesWith(run.dir().string()).empty());
  // The job's own command resumes too.
  run.launch();
  end = run.wait();
  EXPECT_EQ(end.code, 0);
  EXPECT_EQ(run.digest(), undisturbed());
}

TEST_F(ControlTest, ADeletedJobLeavesNothing) {
  JobRun run(folder("job"), smallJob(2, 2, kControlSteps));
  ASSERT_EQ(detach(run, smallJob(2, 2, kControlSteps), "worker.compute=delay(50)").code, 0);
  ASSERT_TRUE(goesOn(run, 0));
  const int port = run.agent("worker-0").value("metricsPort", 0);
  const int task_port = run.agent("ps-0").value("taskPort", 0);
  ASSERT_TRUE(accepts(port));
  ChildProcess logs = start("logs", run, "logs", {"-f"});
  EXPECT_EQ(verb("delete", run).code, 2) << "nobody can be asked";
  EXPECT_EQ(stateOf(run), "Running");
  // Suspended and deleted twice at the same time.
  ChildProcess suspend = start("suspend", run, "suspend");
  ChildProcess other = start("delete", run, "delete", {"--yes"});
  const ProgramEnd end = verb("delete", run, {"--yes"});
  EXPECT_THAT(end.code, AnyOf(0, 2)) << end.output;  // 2: the other was done before it looked
  const int other_code = codeOf(other);
  EXPECT_TRUE(end.code == 0 || other_code == 0) << end.output << textOf("delete");
  const int code = codeOf(suspend);
  EXPECT_THAT(code, AnyOf(0, 1, 2)) << textOf("suspend");
  EXPECT_FALSE(fs::exists(run.dir()));
  EXPECT_TRUE(nobodyRuns(run));
  EXPECT_EQ(codeOf(logs), 0);
  EXPECT_FALSE(accepts(port));
  EXPECT_FALSE(accepts(task_port));
  EXPECT_THAT(verb("delete", run, {"--yes"}).output, HasSubstr("no such directory"));
}

TEST_F(ControlTest, ALauncherThatDoesNotAnswerIsKilled) {
  JobRun run(folder("job"), smallJob(1, 1, kControlSteps));
  run.launch("worker.compute=delay(50)");
  ASSERT_TRUE(goesOn(run, 0));
  ASSERT_TRUE(run.launcher().signal(SIGSTOP).ok());
  const ProgramEnd end = verb("delete", run, {"--yes", "--now"});
  EXPECT_EQ(end.code, 0) << end.output;
  EXPECT_FALSE(fs::exists(run.dir()));
  EXPECT_EQ(run.wait().code, -1);
}

TEST_F(ControlTest, ALauncherInTheForegroundIsToldOfTheDeletion) {
  JobRun run(folder("job"), smallJob(1, 1, kControlSteps));
  run.launch("worker.compute=delay(50)");
  ASSERT_TRUE(goesOn(run, 0));
  ASSERT_EQ(verb("delete", run, {"--yes"}).code, 0);
  const ProgramEnd end = run.wait();
  EXPECT_EQ(end.code, 1);
  EXPECT_THAT(end.lastLine(), StartsWith("result: deleted step="));
  EXPECT_FALSE(fs::exists(run.dir()));
}

TEST_F(ControlTest, ALauncherEndsWhenItsDirectoryIsGone) {
  JobRun run(folder("job"), smallJob(1, 1, kControlSteps));
  run.launch("worker.compute=delay(50)");
  ASSERT_TRUE(goesOn(run, 0));
  // Tasks write into it meanwhile.
  ASSERT_TRUE(eventually(
      [&] {
        std::error_code busy;
        fs::remove_all(run.dir(), busy);
        return !busy;
      },
      kControlLimit));
  const ProgramEnd end = run.wait();
  EXPECT_EQ(end.code, 1);
  EXPECT_THAT(end.lastLine(), HasSubstr("is gone"));
  EXPECT_TRUE(nobodyRuns(run));
  fs::remove_all(run.dir());  // what tasks wrote in their last moments
}

// A killed agent leaves its program behind, which falls to the launcher: nothing of it stays in the
// table of processes while the job goes on.
TEST_F(ControlTest, TheLauncherReapsWhatAKilledAgentLeavesBehind) {
  JobRun run(folder("run"), smallJob(1, 2, 100'000));
  run.launch(run.slowSteps());
  ASSERT_TRUE(run.reaches("worker-1", 2));
  const std::vector<pid_t> before = {run.agentPid("worker-1"), run.runtimePid("worker-1")};
  const auto state = [](pid_t pid) { return trainyard::stateOf(pid); };
  ASSERT_GT(before[0], 0);
  ASSERT_EQ(::kill(before[0], SIGKILL), 0);
  EXPECT_TRUE(
      eventually([&] { return state(before[0]) == 0 && state(before[1]) == 0; }, kControlLimit))
      << "agent " << state(before[0]) << ", runtime " << state(before[1]);
  EXPECT_NE(state(run.launcher().pid()), 0);
  ASSERT_EQ(verb("delete", run, {"--yes"}).code, 0);
}

}  // namespace
}  // namespace trainyard
