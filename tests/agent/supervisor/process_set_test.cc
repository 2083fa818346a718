#include "agent/supervisor/process_set.h"

#include <csignal>

#include "base/process/files.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/process/temp_dir.h"

namespace trainyard::agent {
namespace {

using std::chrono::seconds;

constexpr char kWaits[] = "exec sleep 3600";

NamedProcess shell(const std::string& command) {
  NamedProcess process;
  process.name = command;
  process.options.argv = {"/bin/sh", "-c", command};
  process.options.new_process_group = true;
  return process;
}

StatusOr<ProcessSet> start(const std::vector<std::string>& commands, bool foreign = false) {
  std::vector<NamedProcess> processes;
  for (const std::string& command : commands) processes.push_back(shell(command));
  return ProcessSet::spawn(processes, {.foreign = foreign});
}

// Looks until all have ended, by a clock that stands still at `now`.
ExitState endOf(ProcessSet& set, TimePoint now = TimePoint{}) {
  std::optional<ExitState> exit;
  EXPECT_TRUE(eventually([&] { return (exit = set.poll(now)).has_value(); }));
  return exit.value_or(ExitState{});
}

// Looks until process `p` has ended; others run on.
void awaitEndOf(ProcessSet& set, std::size_t p, TimePoint now = TimePoint{}) {
  EXPECT_TRUE(eventually([&] {
    EXPECT_EQ(set.poll(now), std::nullopt);
    return !set.running(p);
  }));
}

TEST(ProcessSet, EndsWellOnceAllHave) {
  StatusOr<ProcessSet> set = start({"exit 0", "sleep 0.2"});
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ(set->pids().size(), 2u);
  EXPECT_EQ(endOf(*set), ExitState{});
}

TEST(ProcessSet, OneThatEndsWellIsNotFollowed) {
  StatusOr<ProcessSet> set = start({"exit 0", kWaits});
  ASSERT_TRUE(set.ok());
  awaitEndOf(*set, 0);
  EXPECT_EQ(set->poll(TimePoint{} + seconds(3600)), std::nullopt);
  EXPECT_TRUE(set->running(1));
}

TEST(ProcessSet, AllDieWithOneThatWasKilled) {
  StatusOr<ProcessSet> set = start({kWaits, "kill -9 $$", kWaits});
  ASSERT_TRUE(set.ok());
  EXPECT_EQ(endOf(*set), (ExitState{.code = 0, .signal = SIGKILL}));
}

TEST(ProcessSet, TheFirstFailureIsThatOfAll) {
  StatusOr<ProcessSet> set = start({"sleep 3600 & wait", "exit 1"});
  ASSERT_TRUE(set.ok());
  EXPECT_EQ(endOf(*set), ExitState{.code = 1});
}

// What a restart does not mend may be on its way to the others too.
TEST(ProcessSet, AFinalFailureLeavesTheOthersTime) {
  StatusOr<ProcessSet> set = start({"exit 3", kWaits});
  ASSERT_TRUE(set.ok());
  awaitEndOf(*set, 0);
  EXPECT_EQ(set->poll(TimePoint{} + ProcessSet::kEndTime / 2), std::nullopt);
  EXPECT_TRUE(set->running(1));
  EXPECT_EQ(endOf(*set, TimePoint{} + ProcessSet::kEndTime), ExitState{.code = 3});
}

TEST(ProcessSet, WhoIsAskedToEndMayTakeItsTime) {
  StatusOr<ProcessSet> set = start({kWaits, "exec env --ignore-signal=TERM sleep 3600"});
  ASSERT_TRUE(set.ok());
  // It is given the signal only once it does not mind it any more.
  ASSERT_TRUE(eventually([&] {
    const auto name = readFile(fmt::format("/proc/{}/comm", set->pids()[1]), 100);
    return name.ok() && *name == "sleep\n";
  }));
  set->signal(SIGTERM, /*group=*/false);
  awaitEndOf(*set, 0, TimePoint{} + seconds(3600));
  set->signal(SIGKILL, /*group=*/true);
  EXPECT_EQ(endOf(*set).signal, SIGTERM);
}

TEST(ProcessSet, NoneStaysWhereOneCannotBeStarted) {
  std::vector<NamedProcess> processes = {shell(kWaits), shell(kWaits)};
  processes[1].options.argv = {"/no/such/program"};
  const StatusOr<ProcessSet> set = ProcessSet::spawn(processes, {});
  EXPECT_EQ(set.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(set.status().message()), testing::HasSubstr("/no/such/program"));
}

}  // namespace
}  // namespace trainyard::agent
