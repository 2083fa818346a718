#include "tests/multiproc/run_fixture.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>

#include "base/core/strings.h"
#include "base/process/files.h"
#include "fmt/format.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxText = 64 << 20;
constexpr Duration kRunFixtureLimit = std::chrono::seconds(240);  // a bound against hangs only
constexpr char kFailpoints[] = "TRAINYARD_FAILPOINTS=";
constexpr char kSlow[] = "steps-are-slow";  // a file

std::vector<std::string> environmentWith(const std::string& failpoints) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with(kFailpoints)) result.emplace_back(*entry);
  }
  if (!failpoints.empty()) result.push_back(kFailpoints + failpoints);
  return result;
}

// Fields of /proc/PID/stat behind the command's name; empty when there is no such process.
std::vector<std::string> statOf(pid_t pid) {
  const auto text = readFile(fmt::format("/proc/{}/stat", pid), 4096);
  if (!text.ok()) return {};
  std::istringstream in(text->substr(text->rfind(')') + 1));
  std::vector<std::string> fields;
  for (std::string field; in >> field;) fields.push_back(field);
  return fields;
}

// Why waiting for a process has failed.
std::string troubleOf(const Status& status, Duration limit, const std::string& what) {
  if (absl::IsDeadlineExceeded(status)) return Waited::timedOut(limit, what).trouble();
  return status.ToString();
}

// Port and inode of every TCP socket of this machine that listens.
std::vector<std::pair<int, std::string>> listeningSockets() {
  std::vector<std::pair<int, std::string>> found;
  for (const char* file : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream in(file);
    std::string line;
    std::getline(in, line);  // the heading
    while (std::getline(in, line)) {
      std::istringstream words(line);
      std::string number, local, remote, state, skipped, inode;
      words >> number >> local >> remote >> state;
      for (int i = 0; i < 5; ++i) words >> skipped;
      words >> inode;
      if (state != "0A") continue;
      found.emplace_back(std::stoi(local.substr(local.rfind(':') + 1), nullptr, 16), inode);
    }
  }
  return found;
}

// The process that has the socket open; 0: none that can be seen.
pid_t ownerOf(const std::string& inode) {
  const std::string wanted = fmt::format("socket:[{}]", inode);
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    const auto pid = parseNumber<pid_t>(entry.path().filename().string());
    if (!pid) continue;
    for (const auto& fd : fs::directory_iterator(entry.path() / "fd", ignored)) {
      if (fs::read_symlink(fd.path(), ignored) == wanted) return *pid;
    }
  }
  return 0;
}

}  // namespace

std::string programPath(const std::string& name) {
  if (name.starts_with('/')) return name;
  if (const char* bin = std::getenv("TRAINYARD_BIN")) return fmt::format("{}/{}", bin, name);
  // By hand: the programs of the same build.
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  return self.parent_path().parent_path() / "bin" / name;
}

std::string ProgramEnd::lastLine() const {
  const std::string text = output.substr(0, output.find_last_not_of('\n') + 1);
  const std::size_t newline = text.rfind('\n');
  return newline == std::string::npos ? text : text.substr(newline + 1);
}

std::map<std::string, std::string> fieldsOf(const std::string& line) {
  std::map<std::string, std::string> fields;
  std::istringstream in(line);
  for (std::string word; in >> word;) {
    const auto [key, value] = splitFirst(word, '=');
    if (word.find('=') != std::string::npos) fields[std::string(key)] = std::string(value);
  }
  return fields;
}

std::vector<pid_t> processesWith(const std::string& text) {
  std::vector<pid_t> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    const auto pid = parseNumber<pid_t>(entry.path().filename().string());
    if (pid && *pid != ::getpid() && commandOf(*pid).find(text) != std::string::npos)
      found.push_back(*pid);
  }
  return found;
}

pid_t parentOf(pid_t pid) {
  const std::vector<std::string> stat = statOf(pid);
  return stat.size() < 2 ? 0 : parseNumber<pid_t>(stat[1]).value_or(0);
}

char stateOf(pid_t pid) {
  const std::vector<std::string> stat = statOf(pid);
  return stat.empty() ? 0 : stat[0][0];
}

std::string commandOf(pid_t pid) {
  std::string text = readFile(fmt::format("/proc/{}/cmdline", pid), 1 << 20).value_or("");
  std::replace(text.begin(), text.end(), '\0', ' ');
  return text;
}

std::vector<int> portsOf(const JobRun& run) {
  std::vector<int> ports;
  std::error_code ignored;
  for (const auto& task : fs::directory_iterator(run.dir() / "tasks", ignored)) {
    const nlohmann::json agent = run.agent(task.path().filename().string());
    if (!agent.is_object()) continue;
    for (const char* name : {"agentPort", "metricsPort", "taskPort"}) {
      if (const int port = agent.value(name, 0); port > 0) ports.push_back(port);
    }
  }
  return ports;
}

std::vector<int> listeningAmong(const std::vector<int>& ports, const std::string& text) {
  std::vector<int> found;
  for (const auto& [port, inode] : listeningSockets()) {
    if (std::find(ports.begin(), ports.end(), port) == ports.end()) continue;
    const pid_t owner = ownerOf(inode);
    if (owner == 0 || commandOf(owner).find(text) != std::string::npos) found.push_back(port);
  }
  return found;
}

namespace {

ProgramEnd runProgramIn(const fs::path& cwd, const std::vector<std::string>& argv,
                        const std::string& failpoints, Duration limit) {
  ProgramEnd end;
  TempDir dir;
  SpawnOptions spawn;
  spawn.argv = argv;
  spawn.argv[0] = programPath(argv[0]);
  spawn.env = environmentWith(failpoints);
  spawn.cwd = cwd.string();
  spawn.output_file = (dir.path() / "output").string();
  spawn.die_with_spawning_thread = true;
  auto child = ChildProcess::spawn(spawn);
  if (!child.ok()) {
    ADD_FAILURE() << child.status();
    return end;
  }
  const auto exit = child->wait(systemClock().now() + limit);
  end.output = readFile(spawn.output_file, kMaxText).value_or("");
  if (!exit.ok()) {
    ADD_FAILURE() << troubleOf(exit.status(), limit, argv[0] + " to end") << "\n" << end.output;
  } else if (exit->signal == 0) {
    end.code = exit->code;
  }
  return end;
}

}  // namespace

ProgramEnd runProgram(const std::vector<std::string>& argv, const std::string& failpoints,
                      Duration limit) {
  const TempDir dir;
  return runProgramIn(dir.path(), argv, failpoints, limit);
}

JobRun::JobRun(const fs::path& dir, const std::string& yaml, std::vector<std::string> flags)
    : base_(dir), dir_(dir / "run"), flags_(std::move(flags)) {
  EXPECT_TRUE(writeFileAtomically(base_ / "job.yaml", yaml).ok());
}

JobRun::~JobRun() {
  launcher_.reset();
  if (testing::Test::HasFailure()) printLogs();
}

void JobRun::printLogs() const {
  fmt::print("--- {}\n{}", dir_.string(), output());
  std::error_code ignored;
  for (const auto& task : fs::directory_iterator(dir_ / "tasks", ignored)) {
    fmt::print("{}", readFile(task.path() / "task.log", kMaxText).value_or(""));
  }
}

void JobRun::launch(const std::string& failpoints) {
  launcher_.reset();
  std::error_code ignored;
  fs::remove(base_ / "output", ignored);
  SpawnOptions spawn;
  spawn.argv = {programPath("trainyard"),      "run",   "-f",
                (base_ / "job.yaml").string(), "--dir", dir_.string()};
  spawn.argv.insert(spawn.argv.end(), flags_.begin(), flags_.end());
  spawn.env = environmentWith(failpoints);
  spawn.cwd = base_.string();
  spawn.output_file = (base_ / "output").string();
  spawn.new_process_group = true;
  spawn.die_with_spawning_thread = true;  // a crashed test leaves nothing behind
  auto child = ChildProcess::spawn(spawn);
  ASSERT_TRUE(child.ok()) << child.status();
  launcher_ = *std::move(child);
}

ProgramEnd JobRun::wait(Duration limit) {
  ProgramEnd end;
  const auto exit = launcher_->wait(systemClock().now() + limit);
  end.output = output();
  if (!exit.ok()) ADD_FAILURE() << troubleOf(exit.status(), limit, "the launcher to end");
  if (exit.ok() && exit->signal == 0) end.code = exit->code;
  return end;
}

ProgramEnd JobRun::launchAndWait(const std::string& failpoints) {
  launch(failpoints);
  return launcher_ ? wait() : ProgramEnd();
}

std::string JobRun::slowSteps(std::int64_t from) const {
  return fmt::format("worker.compute=delay(100)@{}-{}{}", from,
                     std::numeric_limits<std::int64_t>::max(), untilReleased());
}

std::string JobRun::untilReleased() const {
  const fs::path file = base_ / kSlow;
  EXPECT_TRUE(writeFileAtomically(file, "").ok());
  return ",while=" + file.string();
}

void JobRun::releaseSteps() const {
  std::error_code ignored;
  fs::remove(base_ / kSlow, ignored);
}

ProgramEnd JobRun::releaseAndWait() {
  releaseSteps();
  return wait();
}

std::string JobRun::output() const {
  return readFile(base_ / "output", kMaxText).value_or("");
}

std::string JobRun::taskLog(const std::string& task) const {
  return readFile(taskDir(task) / "task.log", kMaxText).value_or("");
}

nlohmann::json JobRun::json(const std::string& name) const {
  const auto text = readFile(dir_ / name, kMaxText);
  return text.ok() ? nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false)
                   : nlohmann::json();
}

nlohmann::json JobRun::agent(const std::string& task) const {
  return json("tasks/" + task + "/agent.json");
}

pid_t JobRun::agentPid(const std::string& task) const {
  const nlohmann::json file = agent(task);
  return file.is_object() ? file.value("pid", 0) : 0;
}

pid_t JobRun::runtimePid(const std::string& task) const {
  const nlohmann::json file = agent(task);
  return file.is_object() ? file.value("childPid", 0) : 0;
}

std::vector<PositionRecord> JobRun::positions(const std::string& task) const {
  std::vector<PositionRecord> records;
  std::ifstream in(taskDir(task) / "positions.jsonl");
  for (std::string line; std::getline(in, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) continue;  // still being written
    records.push_back(
        {json.at("step"), json.at("epoch"), json.at("rank"), json.at("first"), json.at("count")});
  }
  return records;
}

Waited JobRun::reaches(const std::string& task, std::int64_t step) const {
  return eventually(
      [&] {
        const std::vector<PositionRecord> records = positions(task);
        return !records.empty() && records.back().step >= step;
      },
      kRunFixtureLimit);
}

std::vector<std::int64_t> JobRun::checkpointSteps() const {
  std::vector<std::int64_t> steps;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(dir_ / "checkpoints", ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("step-") || entry.path().extension() != ".json") continue;
    const std::string number = name.substr(5, name.find('.') - 5);
    if (const auto step = parseNumber<std::int64_t>(number)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::int64_t JobRun::newestCheckpoint() const {
  const std::vector<std::int64_t> steps = checkpointSteps();
  return steps.empty() ? -1 : steps.back();
}

Waited JobRun::hasCheckpoint() const {
  return eventually([&] { return newestCheckpoint() > 0; }, kRunFixtureLimit);
}

std::string JobRun::digest() const {
  const ProgramEnd end = runProgram({"trainyard", "checkpoint", "digest", dir_.string()});
  EXPECT_EQ(end.code, 0) << end.output;
  EXPECT_EQ(end.lastLine().size(), 64u) << end.output;
  return end.lastLine();
}

void killTask(const JobRun& run, const std::string& task, int signal) {
  const pid_t pid = run.runtimePid(task);
  ASSERT_GT(pid, 0) << task;
  ASSERT_EQ(::kill(pid, signal), 0) << task;
}

pid_t stoppedTask(const JobRun& run, const std::string& task) {
  pid_t pid = 0;
  const auto stopped = [&] {
    pid = run.runtimePid(task);
    return pid > 0 && stateOf(pid) == 'T';
  };
  const Waited waited = eventually(stopped, kRunFixtureLimit);
  EXPECT_TRUE(waited) << task;
  return waited ? pid : 0;
}

namespace {

std::vector<std::string> foldersOf(int workers) {
  std::vector<std::string> folders;
  for (int w = 0; w < workers; ++w) folders.push_back(fmt::format("worker-{}", w));
  return folders;
}

}  // namespace

std::map<std::int64_t, int> usesOfPositions(const JobRun& run, int workers) {
  return usesOfPositions(run, foldersOf(workers));
}

void expectEachPositionOnce(const JobRun& run, int workers, std::int64_t end) {
  expectEachPositionOnce(run, foldersOf(workers), end);
}

std::map<std::int64_t, int> usesOfPositions(const JobRun& run,
                                            const std::vector<std::string>& folders) {
  std::map<std::pair<std::int64_t, int>, PositionRecord> valid;
  for (const std::string& folder : folders) {
    for (const PositionRecord& record : run.positions(folder)) {
      PositionRecord& kept = valid[{record.step, record.rank}];
      if (record.epoch >= kept.epoch) kept = record;
    }
  }
  std::map<std::int64_t, int> uses;
  for (const auto& [key, record] : valid) {
    for (std::int64_t i = 0; i < record.count; ++i) ++uses[record.first + i];
  }
  return uses;
}

void expectEachPositionOnce(const JobRun& run, const std::vector<std::string>& folders,
                            std::int64_t end) {
  const std::map<std::int64_t, int> uses = usesOfPositions(run, folders);
  ASSERT_EQ(static_cast<std::int64_t>(uses.size()), end);
  EXPECT_EQ(uses.begin()->first, 0);
  EXPECT_EQ(uses.rbegin()->first, end - 1);
  for (const auto& [position, count] : uses) ASSERT_EQ(count, 1) << "position " << position;
}

RunTest::~RunTest() {
  // Agents of a killed launcher end as soon as they see it.
  const Waited alone =
      eventually([&] { return processesWith(root().string()).empty(); }, std::chrono::seconds(15));
  EXPECT_TRUE(alone) << "left running";
  for (const pid_t pid : processesWith(root().string())) {
    fmt::print("left: {}\n", commandOf(pid));
    ::kill(pid, SIGKILL);
  }
}

fs::path RunTest::folder(const std::string& name) {
  const fs::path path = root() / name;
  EXPECT_TRUE(makeDirectories(path).ok());
  return path;
}

fs::path RunTest::writeText(const std::string& name, const std::string& text) {
  const fs::path path = root() / name;
  EXPECT_TRUE(writeFileAtomically(path, text).ok());
  return path;
}

std::string RunTest::undisturbedDigest(const std::string& yaml,
                                       const std::vector<std::string>& flags) {
  static std::map<std::pair<std::string, std::vector<std::string>>, std::string> digests;
  std::string& digest = digests[{yaml, flags}];
  if (digest.empty()) {
    const TempDir dir;
    JobRun run(dir.path(), yaml, flags);
    const ProgramEnd end = run.launchAndWait();
    EXPECT_EQ(end.code, 0) << end.output;
    digest = run.digest();
  }
  return digest;
}

ProgramEnd RunTest::program(const std::vector<std::string>& argv, const std::string& failpoints) {
  // A job that goes on without its launcher's terminal must not lose its folder.
  return runProgramIn(root(), argv, failpoints, std::chrono::seconds(240));
}

std::string smallJob(int ps, int workers, int steps) {
  return fmt::format(R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {{name: small}}
spec:
  ps: {{replicas: {}}}
  worker: {{replicas: {}}}
  training:
    model: {{name: mlp, hidden: [32], dropout: 0.5}}
    data: {{format: synthetic, shape: [8, 8, 1], classes: 4, samples: 3000, evalSamples: 500}}
    batchSize: 16
    steps: {}
    seed: 3
    deterministic: true
    optimizer: {{name: RMSProp, learningRate: 0.001, momentum: 0.9}}
)",
                     ps, workers, steps);
}

}  // namespace trainyard
