// The real agent with a program that stands in for the runtime: restarts, signals, and that nothing
// is left when any of the three (launcher, agent, program) ends.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "agent/membership/membership_file.h"
#include "base/process/child_process.h"
#include "base/process/cpus.h"
#include "base/process/files.h"
#include "base/process/pipe.h"
#include "base/rpc/channel.h"
#include "base/rpc/token.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "httplib.h"
#include "nlohmann/json.hpp"
#include "tests/base/process/temp_dir.h"
#include "trainyard/v1/agent.grpc.pb.h"

namespace trainyard::agent {
namespace {

using nlohmann::json;
using testing::HasSubstr;

bool isAlive(pid_t pid) {
  const StatusOr<std::string> stat = readFile(fmt::format("/proc/{}/stat", pid), 4096);
  return stat.ok() && stat->find(") Z ") == std::string::npos;
}

std::string programs() {
  const char* bin = std::getenv("TRAINYARD_BIN");
  return bin == nullptr ? "." : bin;
}

class AgentProcessTest : public testing::Test {
 protected:
  AgentProcessTest() {
    EXPECT_TRUE(makeDirectories(taskDir(), 0700).ok());
    write("job.json", R"({"metadata": {"name": "demo", "uid": "uid-1"}})");
    write("token", token_);
  }
  // What a failed test needs to be understood.
  ~AgentProcessTest() override {
    agent_.reset();
    if (HasFailure()) {
      fmt::print("{}\n", readFile(taskDir() / "task.log", 1 << 20).value_or("no log"));
    }
  }

  std::filesystem::path jobDir() const { return dir_.path(); }
  std::filesystem::path taskDir() const { return dir_.path() / "tasks" / "worker-0"; }
  void write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(writeFileAtomically(jobDir() / name, text).ok());
  }
  void publishMembership(std::uint32_t created) {
    v1::Membership membership;
    membership.set_uid("uid-1");
    membership.set_revision(1);
    v1::MemberTask* ps = membership.add_tasks();
    ps->mutable_id()->set_role(v1::ROLE_PS);
    ps->set_port(1);
    v1::MemberTask* self = membership.add_tasks();
    self->mutable_id()->set_role(v1::ROLE_WORKER);
    self->set_created(created);
    write("membership.json", formatMembership(membership));
  }

  void startAgent(std::vector<std::string> more = {}, std::vector<int> keep = {}) {
    SpawnOptions options;
    options.argv = {programs() + "/trainyard-agent",
                    "--role",
                    "worker",
                    "--index",
                    "0",
                    "--created",
                    "7",
                    "--job-dir",
                    jobDir(),
                    "--task-dir",
                    taskDir(),
                    "--job",
                    jobDir() / "job.json",
                    "--membership",
                    jobDir() / "membership.json",
                    "--token",
                    jobDir() / "token",
                    "--runtime",
                    runtime_};
    options.argv.insert(options.argv.end(), more.begin(), more.end());
    options.env = {{"LD_BIND_NOW=1", "TRAINYARD_BIN=x", "TRAINYARD_FAILPOINTS=", "HOME=/"}};
    options.output_file = taskDir() / "task.log";
    options.keep_fds = std::move(keep);
    options.die_with_spawning_thread = true;  // a crashed test leaves nothing behind
    options.new_process_group = true;
    StatusOr<ChildProcess> agent = ChildProcess::spawn(options);
    ASSERT_TRUE(agent.ok()) << agent.status();
    agent_ = std::move(*agent);
  }
  // A running agent whose program has reported.
  void startReadyAgent(std::vector<std::string> more = {}, std::vector<int> keep = {}) {
    publishMembership(7);
    startAgent(std::move(more), std::move(keep));
    ASSERT_TRUE(eventually([&] { return ready(); }));
  }

  json agentFile() const {
    const StatusOr<std::string> text = readFile(taskDir() / "agent.json", 10'000);
    return text.ok() ? json::parse(*text) : json();
  }
  bool agentSays(const char* field, const json& value) const {
    const json file = agentFile();
    return file.is_object() && file.at(field) == value;
  }
  std::string scrape(const std::string& path, int want = 200) const {
    const json file = agentFile();
    if (!file.is_object()) return "";
    httplib::Client client("127.0.0.1", file.at("metricsPort").get<int>());
    const auto reply = client.Get(path);
    return reply && reply->status == want ? reply->body : "";
  }
  bool ready() const { return !scrape("/readyz").empty(); }
  double metric(const std::string& name) const {
    const std::string page = scrape("/metrics");
    const std::size_t line = page.find("\n" + name + "{");
    if (line == std::string::npos) return -1;
    return std::stod(page.substr(page.find("} ", line) + 2));
  }
  int exitCode() {
    const StatusOr<ExitState> exit = agent_->wait(systemClock().now() + std::chrono::seconds(30));
    EXPECT_TRUE(exit.ok()) << exit.status();
    EXPECT_EQ(exit->signal, 0);
    return exit->code;
  }

  const TempDir dir_;
  const std::string token_ = std::string(64, '7');
  std::string runtime_ = programs() + "/../tests/agent_stand_in";
  std::optional<ChildProcess> agent_;
};

TEST_F(AgentProcessTest, StartsTheProgramOnceTheMembershipHoldsThisLife) {
  publishMembership(6);  // of an earlier life of the task
  startAgent();
  ASSERT_TRUE(eventually([&] { return agentFile().is_object(); }));
  EXPECT_EQ(agentFile().at("child"), "Waiting");
  EXPECT_EQ(scrape("/healthz"), "ok\n");
  EXPECT_NE(scrape("/readyz", 503), "");
  v1::Membership next =
      parseMembership(readFile(jobDir() / "membership.json", 10'000).value(), "").value();
  next.set_revision(2);
  next.mutable_tasks(1)->set_created(7);
  write("membership.json", formatMembership(next));
  ASSERT_TRUE(eventually([&] { return ready(); }));
  const json file = agentFile();
  EXPECT_EQ(file.at("child"), "Running");
  EXPECT_EQ(file.at("start"), 1);
  EXPECT_EQ(file.at("pid"), agent_->pid());
  const json child = json::parse(readFile(taskDir() / "child.json", 1 << 20).value());
  EXPECT_EQ(child.at("pid"), file.at("childPid"));
  EXPECT_EQ(child.at("flags").at("--port"), fmt::to_string(file.at("taskPort").get<int>()));
  EXPECT_EQ(child.at("flags").at("--created"), "7");
  EXPECT_THAT(
      child.at("environment"),
      testing::UnorderedElementsAre("TRAINYARD_FAILPOINTS=", "HOME=/", "OMP_WAIT_POLICY=passive"));
  struct stat info {};
  ASSERT_EQ(::stat((taskDir() / "report.sock").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(AgentProcessTest, RestartsAKilledProgramAndKeepsItsCounters) {
  ASSERT_NO_FATAL_FAILURE(startReadyAgent());
  const json before = agentFile();
  EXPECT_GE(metric("trainyard_worker_examples_total"), 100);
  EXPECT_EQ(metric("trainyard_task_restarts_total"), 0);
  ASSERT_EQ(::kill(before.at("childPid").get<pid_t>(), SIGKILL), 0);
  ASSERT_TRUE(eventually([&] { return agentSays("start", 2) && ready(); }));
  const json after = agentFile();
  EXPECT_NE(after.at("childPid"), before.at("childPid"));
  EXPECT_EQ(after.at("taskPort"), before.at("taskPort"));
  EXPECT_EQ(after.at("lastSignal"), 9);
  EXPECT_EQ(after.at("child"), "Running");
  EXPECT_GE(metric("trainyard_worker_examples_total"), 200) << "both lives together";
  EXPECT_EQ(metric("trainyard_task_restarts_total"), 1);
  EXPECT_THAT(scrape("/metrics"), HasSubstr("trainyard_build_info{"));
  EXPECT_THAT(
      scrape("/metrics"),
      HasSubstr("trainyard_task_ready{trainyard_job=\"demo\",role=\"worker\",index=\"0\"} 1"));
}

TEST_F(AgentProcessTest, ProcessesOfOneProgramLiveAndDieTogether) {
  ASSERT_NO_FATAL_FAILURE(startReadyAgent({"--processes", "2"}));
  const auto before = agentFile().at("childPids").get<std::vector<pid_t>>();
  ASSERT_EQ(before.size(), 2u);
  for (int process : {0, 1}) {
    const auto folder = taskDir() / fmt::format("process-{}", process);
    const json child = json::parse(readFile(folder / "child.json", 1 << 20).value());
    EXPECT_EQ(child.at("pid"), before.at(static_cast<std::size_t>(process)));
    EXPECT_EQ(child.at("flags").at("--index"), fmt::to_string(process));
    const int port = process == 0 ? agentFile().at("taskPort").get<int>() : 0;
    EXPECT_EQ(child.at("flags").at("--port"), fmt::to_string(port));
  }
  ASSERT_EQ(::kill(before[1], SIGKILL), 0);
  ASSERT_TRUE(eventually([&] { return agentSays("start", 2) && ready(); }));
  EXPECT_FALSE(isAlive(before[0]));
  EXPECT_EQ(metric("trainyard_task_restarts_total"), 1);
  EXPECT_GE(metric("trainyard_worker_examples_total"), 400) << "both lives of both";
  ASSERT_TRUE(writeFileAtomically(taskDir() / "process-0" / "ending", "exit 0").ok());
  const pid_t first = agentFile().at("childPids").at(0).get<pid_t>();
  EXPECT_TRUE(eventually([&] {
    return readFile(taskDir() / "task.log", 1 << 20)
               .value_or("")
               .find(fmt::format("worker-0.0: process {} ended", first)) != std::string::npos;
  }));
  EXPECT_TRUE(agentSays("child", "Running")) << "until all have ended";
  ASSERT_TRUE(writeFileAtomically(taskDir() / "process-1" / "ending", "exit 0").ok());
  EXPECT_EQ(exitCode(), 0);
}

TEST_F(AgentProcessTest, TellsTheProgramHowManyThreadsComputeAndWhy) {
  const int cores = std::max(1, static_cast<int>(availableCpus(usableCores()).cores));
  struct Row {
    std::string training;
    std::vector<std::string> flags;
    int threads;
    std::string reason;
  };
  for (const Row& row :
       {Row{R"({"threads": 3})", {}, 3, "training.threads"},
        Row{R"({"threads": "Auto"})", {}, cores, "training.threads: Auto, "},
        Row{R"({"threads": "Auto", "deterministic": true})", {}, 1, "deterministic"},
        Row{R"({})", {"--workers-here", "9999", "--processes", "2"}, 1, "by 19998 processes"}}) {
    write("job.json", fmt::format(R"({{"metadata": {{"name": "demo", "uid": "uid-1"}},
                                      "spec": {{"training": {}}}}})",
                                  row.training));
    ASSERT_NO_FATAL_FAILURE(startReadyAgent(row.flags));
    const auto folder = row.flags.empty() ? taskDir() : taskDir() / "process-1";
    const json child = json::parse(readFile(folder / "child.json", 1 << 20).value());
    EXPECT_EQ(child.at("flags").at("--threads"), fmt::to_string(row.threads)) << row.training;
    EXPECT_THAT(child.at("flags").at("--threads-reason").get<std::string>(), HasSubstr(row.reason));
    ASSERT_EQ(::kill(agent_->pid(), SIGTERM), 0);
    exitCode();
    std::filesystem::remove(taskDir() / "agent.json");
  }
}

TEST_F(AgentProcessTest, EndsWithTheProgramsFinalCode) {
  ASSERT_NO_FATAL_FAILURE(startReadyAgent());
  ASSERT_TRUE(writeFileAtomically(taskDir() / "ending", "exit 4").ok());
  EXPECT_EQ(exitCode(), 4);
  EXPECT_TRUE(agentSays("child", "Exited"));
  EXPECT_TRUE(agentSays("lastExitCode", 4));
  const auto report = json::parse(readFile(taskDir() / "report.json", 1 << 20).value());
  EXPECT_EQ(report.at("phase"), "Training");
}

TEST_F(AgentProcessTest, StopsTheProgramOnASignal) {
  ASSERT_NO_FATAL_FAILURE(startReadyAgent());
  const pid_t child = agentFile().at("childPid").get<pid_t>();
  ASSERT_TRUE(agent_->signal(SIGTERM).ok());
  EXPECT_EQ(exitCode(), 143);
  EXPECT_FALSE(isAlive(child));
}

TEST_F(AgentProcessTest, TheProgramDiesWithAKilledAgent) {
  ASSERT_NO_FATAL_FAILURE(startReadyAgent());
  const pid_t child = agentFile().at("childPid").get<pid_t>();
  ASSERT_TRUE(agent_->signal(SIGKILL).ok());
  EXPECT_TRUE(eventually([&] { return !isAlive(child); }));
}

TEST_F(AgentProcessTest, BothEndWhenTheLauncherIsGone) {
  StatusOr<Pipe> pipe = makePipe();
  ASSERT_TRUE(pipe.ok());
  const int fd = pipe->read_end.get();
  ASSERT_NO_FATAL_FAILURE(startReadyAgent({"--launcher-fd", fmt::to_string(fd)}, {fd}));
  pipe->read_end.reset();
  const pid_t child = agentFile().at("childPid").get<pid_t>();
  EXPECT_TRUE(isAlive(child));
  pipe->write_end.reset();
  EXPECT_EQ(exitCode(), 129);
  EXPECT_FALSE(isAlive(child));
}

TEST_F(AgentProcessTest, AnswersOnlyThoseWithTheToken) {
  ASSERT_NO_FATAL_FAILURE(startReadyAgent());
  const auto stub = v1::Agent::NewStub(
      openChannel(fmt::format("127.0.0.1:{}", agentFile().at("agentPort").get<int>())));
  const auto getTask = [&](const std::string& token, v1::TaskState& state) {
    grpc::ClientContext context;
    setDeadline(context, std::chrono::seconds(20));
    addToken(context, token);
    return stub->GetTask(&context, {}, &state).error_code();
  };
  v1::TaskState state;
  EXPECT_EQ(getTask(std::string(64, '8'), state), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(getTask(token_, state), grpc::StatusCode::OK);
  EXPECT_EQ(state.child(), "Running");
  EXPECT_TRUE(state.report().ready());
}

TEST_F(AgentProcessTest, PassesAStopOfTheJobOn) {
  ASSERT_NO_FATAL_FAILURE(startReadyAgent());
  const auto stub = v1::Agent::NewStub(
      openChannel(fmt::format("127.0.0.1:{}", agentFile().at("agentPort").get<int>())));
  grpc::ClientContext context;
  setDeadline(context, std::chrono::seconds(20));
  addToken(context, token_);
  v1::StopJobReply reply;
  ASSERT_TRUE(stub->StopJob(&context, {}, &reply).ok());
  EXPECT_EQ(exitCode(), 0) << "the program ended by itself";
}

TEST_F(AgentProcessTest, SaysWhatItCannotUse) {
  write("token", "short");
  startAgent();
  EXPECT_EQ(exitCode(), 2);
  EXPECT_THAT(readFile(taskDir() / "task.log", 1 << 20).value(),
              HasSubstr((jobDir() / "token").native() + ": expected a token"));
}

TEST_F(AgentProcessTest, InstallsAFolderWhereThereIsNoShell) {
  const std::filesystem::path from = jobDir() / "from";
  ASSERT_TRUE(makeDirectories(from / "lib").ok());
  ASSERT_TRUE(writeFileAtomically(from / "program", "p", 0755).ok());
  ASSERT_TRUE(writeFileAtomically(from / "lib" / "l", "l").ok());
  const auto install = [&](const std::string& source) {
    SpawnOptions options;
    options.argv = {programs() + "/trainyard-agent", "install", source, jobDir() / "to"};
    options.output_file = taskDir() / "task.log";
    auto process = ChildProcess::spawn(options);
    EXPECT_TRUE(process.ok()) << process.status();
    return process->wait(systemClock().now() + std::chrono::seconds(60)).value();
  };
  for (int i = 0; i < 2; ++i) EXPECT_EQ(install(from), ExitState{});  // the second time over it
  struct stat program {};
  ASSERT_EQ(::stat((jobDir() / "to" / "program").c_str(), &program), 0);
  EXPECT_EQ(program.st_mode & 0777, 0755u);
  EXPECT_EQ(readFile(jobDir() / "to" / "lib" / "l", 10).value_or(""), "l");
  EXPECT_EQ(install(jobDir() / "nothing").code, 1);
}

TEST_F(AgentProcessTest, GivesUpOnAProgramThatDoesNotExist) {
  publishMembership(7);
  runtime_ = "/no/such/runtime";
  startAgent();
  EXPECT_EQ(exitCode(), 2);
  EXPECT_THAT(readFile(taskDir() / "task.log", 1 << 20).value(), HasSubstr("/no/such/runtime"));
}

}  // namespace
}  // namespace trainyard::agent
