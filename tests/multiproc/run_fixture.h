// Runs of the built programs in folders of their own, for tests of whole jobs: what they print,
// what they leave behind, who is running, and that nobody is left.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/process/child_process.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/base/process/temp_dir.h"

namespace trainyard {

// How a program ended, and all it wrote.
struct ProgramEnd {
  int code = -1;  // -1: ended by a signal
  std::string output;
  std::string lastLine() const;
};

// "key=value key=value" of a result line; the first words, which have no '=', are left out.
std::map<std::string, std::string> fieldsOf(const std::string& line);

// One line of a worker's positions.jsonl.
struct PositionRecord {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  int rank = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// A job file with its run directory, launched any number of times with the same flags.
class JobRun {
 public:
  // `dir` must exist; the job file and the run directory are made in it.
  JobRun(const std::filesystem::path& dir, const std::string& yaml,
         std::vector<std::string> flags = {});
  ~JobRun();  // kills the launcher, and with it the run
  JobRun(const JobRun&) = delete;
  JobRun& operator=(const JobRun&) = delete;

  // The output and the tasks' logs, for whoever has to understand a failure.
  void printLogs() const;

  // Starts `trainyard run`. The output of earlier launches is forgotten.
  void launch(const std::string& failpoints = "");
  ChildProcess& launcher() { return *launcher_; }
  // Waits for the end of the launcher.
  ProgramEnd wait(Duration limit = std::chrono::seconds(240));
  ProgramEnd launchAndWait(const std::string& failpoints = "");
  // Failpoint: from that one on steps last 100 ms until they are released. So long that a job of
  // some hundred steps has not ended before what a test does in the middle of it, on a slow disk
  // either. Of two failpoints at one place the first acts.
  std::string slowSteps(std::int64_t from = 0) const;
  // The end of a failpoint that acts until then.
  std::string untilReleased() const;
  void releaseSteps() const;
  // Once nobody waits for anything but the end.
  ProgramEnd releaseAndWait();
  std::string output() const;

  const std::filesystem::path& dir() const { return dir_; }
  std::filesystem::path taskDir(const std::string& task) const { return dir_ / "tasks" / task; }
  std::string taskLog(const std::string& task) const;
  // agent.json of a task; null when there is none yet.
  nlohmann::json agent(const std::string& task) const;
  // Process of the task's agent / runtime; 0 while there is none.
  pid_t agentPid(const std::string& task) const;
  pid_t runtimePid(const std::string& task) const;
  nlohmann::json json(const std::string& name) const;
  std::vector<PositionRecord> positions(const std::string& task) const;
  // Waits until the task has completed `step`.
  [[nodiscard]] Waited reaches(const std::string& task, std::int64_t step) const;
  // Steps of the committed checkpoints, ascending.
  std::vector<std::int64_t> checkpointSteps() const;
  // The last of them; -1: there is none.
  std::int64_t newestCheckpoint() const;
  // Waits for one that is not that of the beginning.
  [[nodiscard]] Waited hasCheckpoint() const;
  // `trainyard checkpoint digest`; "" and a failure of the test when that fails.
  std::string digest() const;

 private:
  const std::filesystem::path base_;
  const std::filesystem::path dir_;
  const std::vector<std::string> flags_;
  std::optional<ChildProcess> launcher_;
};

// Sends the signal to the task's program, which must be there.
void killTask(const JobRun& run, const std::string& task, int signal = SIGKILL);
// Waits until the task's program is stopped, as `pause` does it: its process, 0 when it never is.
pid_t stoppedTask(const JobRun& run, const std::string& task);

// How often each position of the sample stream was used by the steps that count: where a worker's
// step is recorded twice (it was taken again after a roll-back), the record of the higher epoch.
std::map<std::int64_t, int> usesOfPositions(const JobRun& run, int workers);
// Positions 0 to `end`, each exactly once.
void expectEachPositionOnce(const JobRun& run, int workers, std::int64_t end);
// The same for other folders in tasks/ than those of workers 0, 1, ...
std::map<std::int64_t, int> usesOfPositions(const JobRun& run,
                                            const std::vector<std::string>& folders);
void expectEachPositionOnce(const JobRun& run, const std::vector<std::string>& folders,
                            std::int64_t end);

// A temporary folder for each test; at its end no process may run that has the folder among its
// arguments.
class RunTest : public testing::Test {
 protected:
  ~RunTest() override;

  // A folder of that name in the test's own.
  std::filesystem::path folder(const std::string& name);
  std::filesystem::path writeText(const std::string& name, const std::string& text);
  // Programs of the build by name, to their end.
  ProgramEnd program(const std::vector<std::string>& argv, const std::string& failpoints = "");
  // Digest of the weights that a run of that job ends with when nobody disturbs it; computed once
  // for all tests of the program.
  static std::string undisturbedDigest(const std::string& yaml,
                                       const std::vector<std::string>& flags = {});

  const std::filesystem::path& root() const { return root_.path(); }

 private:
  TempDir root_;
};

// A small job on synthetic data that trains in well below a second: an MLP with dropout, RMSProp
// with momentum, 16 samples for each worker and step.
std::string smallJob(int ps, int workers, int steps);

// Ports that the agents and programs of a run were last seen with.
std::vector<int> portsOf(const JobRun& run);
// Those of `ports` on which somebody listens who has `text` among his arguments, or nobody that can
// be found.
std::vector<int> listeningAmong(const std::vector<int>& ports, const std::string& text);

// Processes that have `text` among their arguments; zombies not counted.
std::vector<pid_t> processesWith(const std::string& text);
// 0 when there is no such process (any more).
pid_t parentOf(pid_t pid);
// R, S, T (stopped) ... as in /proc/PID/stat; 0 when there is no such process.
char stateOf(pid_t pid);
std::string commandOf(pid_t pid);  // arguments, separated by blanks

ProgramEnd runProgram(const std::vector<std::string>& argv, const std::string& failpoints = "",
                      Duration limit = std::chrono::seconds(240));
// Path of one of the build's programs.
std::string programPath(const std::string& name);

}  // namespace trainyard
