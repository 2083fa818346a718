#include "base/process/child_process.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <mutex>
#include <thread>

#include "base/core/strings.h"
#include "base/process/files.h"
#include "base/process/pipe.h"
#include "base/process/signals.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "tests/base/process/temp_dir.h"

namespace trainyard {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TimePoint soon() {
  return systemClock().now() + std::chrono::seconds(20);
}

SpawnOptions shell(const std::string& script) {
  SpawnOptions options;
  options.argv = {"/bin/sh", "-c", script};
  return options;
}

// Runs `options` to its end and returns the lines it wrote.
std::vector<std::string> linesOf(SpawnOptions options, ExitState* exit = nullptr) {
  std::vector<std::string> lines;
  std::mutex mutex;
  options.on_line = [&](std::string_view line) {
    std::lock_guard lock(mutex);
    lines.emplace_back(line);
  };
  StatusOr<ChildProcess> child = ChildProcess::spawn(options);
  EXPECT_TRUE(child.ok()) << child.status();
  const StatusOr<ExitState> ended = child->wait(soon());
  EXPECT_TRUE(ended.ok()) << ended.status();
  if (exit != nullptr) *exit = *ended;
  return lines;
}

bool isAlive(pid_t pid) {
  if (::kill(pid, 0) != 0) return false;
  const StatusOr<std::string> stat = readFile(fmt::format("/proc/{}/stat", pid), 4096);
  return stat.ok() && stat->find(") Z ") == std::string::npos;
}

TEST(ChildProcess, ReportsExitCodesAndSignals) {
  ExitState exit;
  EXPECT_THAT(linesOf(shell("echo one; echo two >&2; printf three; exit 7"), &exit),
              ElementsAre("one", "two", "three"));
  EXPECT_EQ(exit, (ExitState{.code = 7, .signal = 0}));
  linesOf(shell("kill -9 $$"), &exit);
  EXPECT_EQ(exit, (ExitState{.code = 0, .signal = 9}));
  EXPECT_THAT(toString(exit), HasSubstr("killed by signal 9"));
}

TEST(ChildProcess, NamesAProgramThatCannotStart) {
#ifdef TRAINYARD_TSAN
  GTEST_SKIP() << "the thread sanitizer turns vfork into fork: the child cannot say why it failed";
#endif
  const Status missing = ChildProcess::spawn({.argv = {"/no/such/program"}}).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("/no/such/program"));
  const Status folder = ChildProcess::spawn({.argv = {"/etc"}}).status();
  EXPECT_EQ(folder.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(ChildProcess::spawn({}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a failed start leaves no process";
}

TEST(ChildProcess, GivesEnvironmentFolderAndInput) {
  const TempDir dir;
  SpawnOptions options = shell("echo $A-$HOME; pwd -P; cat; echo end");
  const std::string value(200, 'v');
  options.env = {{"A=" + value}};
  options.cwd = std::filesystem::canonical(dir.path());
  EXPECT_THAT(linesOf(options), ElementsAre(value + "-", options.cwd, "end"));
}

TEST(ChildProcess, GetsMoreThanItsParentHas) {
  ::setenv("TRAINYARD_TEST_MORE", "ours", 1);
  SpawnOptions options = shell("echo $TRAINYARD_TEST_MORE-$TRAINYARD_TEST_NEW-${PATH:+path}");
  options.more_env = {"TRAINYARD_TEST_MORE=its", "TRAINYARD_TEST_NEW=new"};
  EXPECT_THAT(linesOf(options), ElementsAre("its-new-path"));
  ::unsetenv("TRAINYARD_TEST_MORE");
  options = shell("echo $A-$B");
  options.env = {{"A=a", "B=b"}};
  options.more_env = {"B=c"};
  EXPECT_THAT(linesOf(options), ElementsAre("a-c"));
}

TEST(ChildProcess, KeepsItsStandardErrorApart) {
  SpawnOptions options = shell("echo out; echo err >&2");
  options.inherit_error = true;
  EXPECT_THAT(linesOf(options), ElementsAre("out"));
}

TEST(ChildProcess, AppendsToItsOutputFile) {
  const TempDir dir;
  for (int i = 0; i < 2; ++i) {
    SpawnOptions options = shell("echo out; echo err >&2");
    options.output_file = dir.path() / "log";
    StatusOr<ChildProcess> child = ChildProcess::spawn(options);
    ASSERT_TRUE(child.ok());
    ASSERT_TRUE(child->wait(soon()).ok());
  }
  EXPECT_EQ(readFile(dir.path() / "log", 100).value(), "out\nerr\nout\nerr\n");
}

TEST(ChildProcess, InheritsOnlyTheDescriptorsItIsGiven) {
  StatusOr<Pipe> kept = makePipe();
  ASSERT_TRUE(kept.ok());
  const UniqueFd leaky(::open("/dev/null", O_RDONLY));  // not close-on-exec
  SpawnOptions options = shell("for f in /proc/self/fd/*; do test -e $f && echo ${f##*/}; done");
  options.keep_fds = {kept->write_end.get()};
  const std::vector<std::string> open = linesOf(options);
  EXPECT_THAT(open, testing::Contains(fmt::to_string(kept->write_end.get())));
  EXPECT_THAT(open, testing::Not(testing::Contains(fmt::to_string(kept->read_end.get()))));
  EXPECT_THAT(open, testing::Not(testing::Contains(fmt::to_string(leaky.get()))));
}

TEST(ChildProcess, StartsWithNoSignalBlocked) {
  StatusOr<SignalWaiter> waiter = SignalWaiter::create({SIGUSR1});
  ASSERT_TRUE(waiter.ok());
  ExitState exit;
  linesOf(shell("kill -USR1 $$; exit 3"), &exit);
  EXPECT_EQ(exit.signal, SIGUSR1);
}

TEST(ChildProcess, WaitEndsAtItsDeadline) {
  StatusOr<ChildProcess> child = ChildProcess::spawn({.argv = {"sleep", "60"}});
  ASSERT_TRUE(child.ok());
  EXPECT_FALSE(child->poll().value().has_value());
  const auto late = child->wait(systemClock().now() + std::chrono::milliseconds(20));
  EXPECT_EQ(late.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(child->stop(std::chrono::seconds(20)).value(), (ExitState{.code = 0, .signal = 15}));
  EXPECT_EQ(child->signal(SIGTERM).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(child->poll().value()->signal, 15);
}

TEST(ChildProcess, StopKillsWhatIgnoresTheRequest) {
  const TempDir dir;
  SpawnOptions options = shell(
      fmt::format("trap '' TERM; touch {}/up; while :; do sleep 0.05; done", dir.path().native()));
  options.new_process_group = true;
  StatusOr<ChildProcess> child = ChildProcess::spawn(options);
  ASSERT_TRUE(child.ok());
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(dir.path() / "up"); }));
  EXPECT_EQ(child->stop(std::chrono::milliseconds(50)).value().signal, SIGKILL);
  EXPECT_TRUE(child->signalGroup(SIGKILL).ok());
}

TEST(ChildProcess, EndsWithItsDestructor) {
  pid_t pid = 0;
  {
    StatusOr<ChildProcess> child = ChildProcess::spawn({.argv = {"sleep", "60"}});
    ASSERT_TRUE(child.ok());
    pid = child->pid();
    EXPECT_TRUE(isAlive(pid));
  }
  EXPECT_FALSE(isAlive(pid));
}

TEST(ChildProcess, DiesWithTheThreadThatSpawnedIt) {
#ifdef TRAINYARD_TSAN
  GTEST_SKIP() << "the thread sanitizer turns vfork into fork: the thread may end before its child "
                  "asks for the signal";
#endif
  std::optional<ChildProcess> child;
  std::thread thread([&] {
    SpawnOptions options;
    options.argv = {"sleep", "60"};
    options.die_with_spawning_thread = true;
    StatusOr<ChildProcess> spawned = ChildProcess::spawn(options);
    if (spawned.ok()) child = std::move(*spawned);
  });
  thread.join();
  ASSERT_TRUE(child.has_value());
  EXPECT_EQ(child->wait(soon()).value().signal, SIGKILL);
}

TEST(ChildProcess, DeliversWhatAGrandchildKeepsOpen) {
  SpawnOptions options = shell("sleep 60 & echo $!; exit 0");
  options.new_process_group = true;
  std::string line;
  options.on_line = [&](std::string_view text) { line = text; };
  StatusOr<ChildProcess> child = ChildProcess::spawn(options);
  ASSERT_TRUE(child.ok());
  ASSERT_TRUE(child->wait(soon()).ok());  // although the pipe stays open
  const auto grandchild = parseNumber<pid_t>(line);
  ASSERT_TRUE(grandchild.has_value());
  EXPECT_TRUE(child->signalGroup(SIGKILL).ok());
  EXPECT_TRUE(eventually([&] { return !isAlive(*grandchild); }));
}

TEST(Descendants, AreAdoptedReapedAndKilled) {
  ASSERT_TRUE(becomeSubreaper().ok());
  StatusOr<ChildProcess> mine = ChildProcess::spawn({.argv = {"sleep", "60"}});
  ASSERT_TRUE(mine.ok());
  // Leaves an orphan that ends, and one of another session that does not.
  const std::vector<std::string> pids =
      linesOf(shell("sh -c 'exit 0' & setsid sleep 60 & echo $!; sleep 0.05"));
  ASSERT_EQ(pids.size(), 1u);
  const pid_t orphan = parseNumber<pid_t>(pids[0]).value();
  reapOrphans({mine->pid()});
  EXPECT_TRUE(isAlive(orphan));
  EXPECT_TRUE(killDescendants(soon()));
  EXPECT_FALSE(isAlive(orphan));
  EXPECT_FALSE(isAlive(mine->pid()));
}

TEST(SignalWaiter, CollectsInsteadOfInterrupting) {
  StatusOr<SignalWaiter> waiter = SignalWaiter::create({SIGUSR2});
  ASSERT_TRUE(waiter.ok());
  EXPECT_FALSE(waiter->next().has_value());
  EXPECT_FALSE(waiter->wait(systemClock().now() + std::chrono::milliseconds(1)).has_value());
  ::kill(::getpid(), SIGUSR2);
  EXPECT_EQ(waiter->wait(soon()), SIGUSR2);
}

}  // namespace
}  // namespace trainyard
