// Jobs with embedding tables whose tasks die, and whose servers come and go while it runs.
#include <algorithm>
#include <map>

#include "fmt/format.h"
#include "tests/multiproc/scaling_fixture.h"
#include "tests/multiproc/side_by_side.h"
#include "tests/multiproc/table_jobs.h"

namespace trainyard {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

constexpr Duration kTablesFaultsLimit = std::chrono::seconds(120);

class TablesFaults : public ScalingTest {};

// A worker that dies takes no row with it, and no step.
TEST_F(TablesFaults, AWorkersDeathLosesNoStep) {
  JobRun run(folder("run"), tablesJob(2, 2, 150));
  const ProgramEnd end = run.launchAndWait("worker.push=crash@70,task=worker-1,life=1.1");
  EXPECT_EQ(end.code, 0) << end.output;
  EXPECT_EQ(run.digest(), undisturbedDigest(tablesJob(2, 2, 150)));
  EXPECT_EQ(run.json("status.json")["status"].value("lostSteps", std::int64_t{0}), 0);
  expectEachPositionOnce(run, 2, std::int64_t{150} * 2 * 32);
}

// Each of the servers there are, at any moment of a step; what was counted and evicted among it.
TEST_F(TablesFaults, AServersDeathLosesNoStep) {
  const std::vector<std::pair<int, std::string>> deaths = {
      {2, "ps.request=crash@110,task=ps-1,life=1.1"},
      {2, "ps.answer=crash@110,task=ps-0,life=1.1"},
      {3, "ps.replica=crash@110,task=ps-2,life=1.1"},
      {2, "ps.replicated=crash@110,task=ps-1,life=1.1"},
      {1, "ps.request=crash@110,task=ps-0,life=1.1"},
      {1, "ps.replica=crash@110,task=worker-0,life=1.1"}};
  const std::string undisturbed = undisturbedDigest(tablesJob(2, 2, 150));
  sideBySide(deaths.size(), [&](std::size_t i) {
    const auto& [servers, failpoint] = deaths[i];
    SCOPED_TRACE(fmt::format("{} of {}", failpoint, servers));
    JobRun run(folder(fmt::format("run-{}", i)), tablesJob(servers, 2, 150));
    const ProgramEnd end = run.launchAndWait(failpoint);
    EXPECT_EQ(end.code, 0) << end.output;
    EXPECT_EQ(run.digest(), undisturbed);
    EXPECT_EQ(run.json("status.json")["status"].value("lostSteps", std::int64_t{0}), 0);
    EXPECT_GT(run.positions("worker-1").back().epoch, 1) << "nobody has died";
  });
}

// Who copies rows dies before it has them all, and so does a worker. Steps are slow until there is
// the last epoch, that of whole copies: how long copying takes is up to what else the machine does.
TEST_F(TablesFaults, ADeathWhileRowsAreCopiedLosesNoStep) {
  const std::string first = "worker.compute=delay(5)@1-62;ps.request=crash@60,task=ps-1,life=1.1;";
  const std::vector<std::pair<std::string, int>> seconds = {
      {"ps.copy=crash,task=ps-1,life=1.2", 4}, {"worker.push=crash@61,task=worker-1,life=1.1", 3}};
  const std::string undisturbed = undisturbedDigest(tablesJob(2, 2, 150));
  sideBySide(seconds.size(), [&](std::size_t i) {
    const auto& [second, epochs] = seconds[i];
    SCOPED_TRACE(second);
    JobRun run(folder(fmt::format("run-{}", i)), tablesJob(2, 2, 150));
    run.launch(first + second + ";ps.copy=delay(10);" + run.slowSteps());
    EXPECT_TRUE(eventually([&] { return newest(run).epoch >= epochs; }, kTablesFaultsLimit));
    const ProgramEnd end = run.releaseAndWait();
    EXPECT_EQ(end.code, 0) << end.output;
    EXPECT_EQ(run.digest(), undisturbed);
    EXPECT_EQ(run.json("status.json")["status"].value("lostSteps", std::int64_t{0}), 0);
    EXPECT_THAT(run.taskLog("ps-0"), HasSubstr("while training goes on ps-1 copies 16"));
    EXPECT_GE(run.positions("worker-0").back().epoch, epochs);
  });
}

// In the middle of a file whose rows are those of a step that is long past.
TEST_F(TablesFaults, ADeathWhileRowsAreWrittenLosesNoStep) {
  JobRun run(folder("run"), tablesJob(2, 2, 150), {"--set", "training.checkpoint.everySeconds=1"});
  run.launch(
      "checkpoint.shard.rows=crash@1-149,task=ps-1,life=1.1;checkpoint.shard.rows=delay(10);" +
      run.slowSteps());
  EXPECT_TRUE(eventually([&] { return newest(run).epoch > 1; }, kTablesFaultsLimit));
  const ProgramEnd end = run.releaseAndWait();
  EXPECT_EQ(end.code, 0) << end.output;
  EXPECT_EQ(run.digest(), undisturbedDigest(tablesJob(2, 2, 150)));
  EXPECT_EQ(run.json("status.json")["status"].value("lostSteps", std::int64_t{0}), 0);
  EXPECT_GT(run.positions("worker-1").back().epoch, 1) << "nobody has died";
}

// Which is written slowly: its rows are those of its step, whatever is trained meanwhile.
TEST_F(TablesFaults, WithoutReplicasAServersDeathReturnsToTheCheckpoint) {
  JobRun run(
      folder("run"), tablesJob(2, 2, 150),
      {"--set", "training.checkpoint.everySeconds=1", "--set", "training.chunkReplicas=Never"});
  const ProgramEnd end = run.launchAndWait(
      "worker.compute=delay(20);checkpoint.shard.rows=delay(10);"
      "ps.request=crash@110,task=ps-1,life=1.1");
  EXPECT_EQ(end.code, 0) << end.output;
  EXPECT_EQ(run.digest(), undisturbedDigest(tablesJob(2, 2, 150)));
  // A death just behind a checkpoint loses none.
  std::map<std::int64_t, int> taken;
  for (const PositionRecord& record : run.positions("worker-0")) ++taken[record.step];
  const auto repeated =
      std::ranges::count_if(taken, [](const auto& step) { return step.second > 1; });
  EXPECT_EQ(run.json("status.json")["status"].value("lostSteps", std::int64_t{0}), repeated);
  EXPECT_GT(run.positions("worker-0").back().epoch, 1) << "nobody has died";
}

// Rows go where their parts go, with their slots and what is counted of others.
TEST_F(TablesFaults, ServersComeAndGo) {
  constexpr int kSteps = 400;
  JobRun run(folder("job"), tablesJob(2, 2, kSteps));
  run.launch(run.slowSteps());
  ASSERT_TRUE(run.reaches("worker-0", 3));
  const std::vector<std::string> stayers = {"ps-0", "worker-0", "worker-1"};
  const auto lives = livesOf(run, stayers);
  for (const char* servers : {"3", "1", "2"}) {
    const ProgramEnd scaled = scale(run, {"--ps", servers});
    ASSERT_EQ(scaled.code, 0) << scaled.output;
    ASSERT_TRUE(goesOn(run)) << servers;
  }
  EXPECT_EQ(livesOf(run, stayers), lives);
  EXPECT_THAT(run.taskLog("ps-0"), HasSubstr("of 16 parts of tables on other servers"));
  const ProgramEnd end = run.releaseAndWait();
  ASSERT_EQ(end.code, 0) << end.output;
  expectUndisturbed(run);
  EXPECT_EQ(run.digest(), undisturbedDigest(tablesJob(2, 2, kSteps)));
}

// Of two servers' deltas on the whole one of the beginning a job goes on with what there was, also
// with three servers; and so does one whose server has died.
TEST_F(TablesFaults, DeltasAreGoneBackTo) {
  const std::vector<std::string> flags = {"--set", "training.checkpoint.everySeconds=1",
                                          "--set", "training.checkpoint.full.everySeconds=3600",
                                          "--set", "training.checkpoint.keep=1",
                                          "--set", "training.chunkReplicas=Never"};
  JobRun run(folder("run"), tablesJob(2, 2, 200), flags);
  run.launch(run.slowSteps());
  ASSERT_TRUE(run.hasCheckpoint());
  ASSERT_TRUE(run.reaches("worker-0", run.newestCheckpoint() + 2));
  ASSERT_NO_FATAL_FAILURE(killTask(run, "ps-1"));
  ASSERT_TRUE(eventually([&] { return newest(run).epoch > 1; }, kTablesFaultsLimit));
  EXPECT_THAT(run.taskLog("ps-0"), HasSubstr("committed, a delta of step-0.e1.json"));
  EXPECT_THAT(run.taskLog("ps-0"), ContainsRegex("from checkpoint step-[1-9][0-9]*.e1.json"));
  ASSERT_TRUE(run.launcher().signal(SIGKILL).ok());
  run.wait();
  const ProgramEnd inspected = program({"trainyard", "checkpoint", "inspect", run.dir().string()});
  EXPECT_EQ(inspected.code, 0) << inspected.output;
  EXPECT_THAT(inspected.output, HasSubstr("ok, a delta of step-0.e1.json"));

  JobRun again(folder("run"), tablesJob(3, 2, 200), flags);
  const ProgramEnd end = again.launchAndWait();
  ASSERT_EQ(end.code, 0) << end.output;
  EXPECT_EQ(again.digest(), undisturbedDigest(tablesJob(2, 2, 200)));
}

}  // namespace
}  // namespace trainyard
