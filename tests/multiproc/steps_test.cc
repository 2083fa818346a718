// The number of steps of a job that trains changes by an edit of its job.yaml: nobody is started
// again, and the weights are bit for bit those of a job that was told so from the start.
#include <signal.h>

#include "base/process/files.h"
#include "fmt/format.h"
#include "tests/multiproc/run_fixture.h"

namespace trainyard {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr Duration kStepsLimit = std::chrono::seconds(120);

class StepsTest : public RunTest {
 protected:
  static void edit(const JobRun& run, std::int64_t from, std::int64_t to) {
    const std::filesystem::path file = run.dir() / "job.yaml";
    std::string text = readFile(file, 1 << 20).value_or("");
    const std::string before = fmt::format("\n    steps: {}\n", from);
    const std::size_t at = text.find(before);
    ASSERT_NE(at, std::string::npos) << text;
    text.replace(at, before.size(), fmt::format("\n    steps: {}\n", to));
    ASSERT_TRUE(writeFileAtomically(file, text).ok());
  }
  // The coordinator says so.
  static Waited moved(const JobRun& run, std::int64_t from, std::int64_t to) {
    const std::string word = fmt::format("the job's end moves from step {} to {}\n", from, to);
    return eventually([&] { return run.taskLog("ps-0").find(word) != std::string::npos; },
                      kStepsLimit);
  }
  static std::map<std::string, pid_t> processesOf(const JobRun& run) {
    std::map<std::string, pid_t> pids;
    for (const char* task : {"ps-0", "ps-1", "worker-0", "worker-1"}) {
      pids[task] = run.runtimePid(task);
    }
    return pids;
  }
  static std::int64_t newest(const JobRun& run) {
    const std::vector<PositionRecord> records = run.positions("worker-0");
    return records.empty() ? -1 : records.back().step;
  }
  static std::string digestOfARunOf(std::int64_t steps) {
    return undisturbedDigest(smallJob(2, 2, static_cast<int>(steps)));
  }
};

TEST_F(StepsTest, MoreAndThenFewer) {
  JobRun run(folder("job"), smallJob(2, 2, 300));
  run.launch(run.slowSteps());
  ASSERT_TRUE(run.reaches("worker-0", 3));
  const auto processes = processesOf(run);
  ASSERT_NO_FATAL_FAILURE(edit(run, 300, 100'000));
  ASSERT_TRUE(moved(run, 300, 100'000)) << run.taskLog("ps-0");
  ASSERT_TRUE(run.reaches("worker-0", newest(run) + 3));
  EXPECT_EQ(processesOf(run), processes);
  const std::int64_t end_step = newest(run) + 200;
  ASSERT_NO_FATAL_FAILURE(edit(run, 100'000, end_step));
  ASSERT_TRUE(moved(run, 100'000, end_step)) << run.taskLog("ps-0");
  EXPECT_EQ(processesOf(run), processes);

  const ProgramEnd end = run.releaseAndWait();
  ASSERT_EQ(end.code, 0) << end.output;
  EXPECT_THAT(end.lastLine(), StartsWith(fmt::format("result: succeeded steps={} ", end_step)));
  EXPECT_THAT(end.output, HasSubstr("job.yaml: training.steps: 300 -> 100000"));
  const nlohmann::json status = run.json("status.json").at("status");
  EXPECT_EQ(status.value("restarts", 0), 0);
  EXPECT_EQ(status.value("lostSteps", 0), 0);
  EXPECT_EQ(run.checkpointSteps().back(), end_step);
  expectEachPositionOnce(run, 2, end_step * 2 * 16);
  EXPECT_EQ(run.digest(), digestOfARunOf(end_step));
}

TEST_F(StepsTest, FewerThanWereTakenEndTheJobWhereItIs) {
  JobRun run(folder("job"), smallJob(2, 2, 100'000));
  run.launch("worker.compute=delay(25)");
  ASSERT_TRUE(run.reaches("worker-0", 12));
  ASSERT_NO_FATAL_FAILURE(edit(run, 100'000, 5));
  const ProgramEnd end = run.wait();
  ASSERT_EQ(end.code, 0) << end.output;
  const std::int64_t last = run.checkpointSteps().back();
  EXPECT_GT(last, 5);
  EXPECT_THAT(end.lastLine(),
              StartsWith(fmt::format("result: succeeded steps={} accuracy=", last)));
  expectEachPositionOnce(run, 2, last * 2 * 16);
  EXPECT_EQ(run.digest(), digestOfARunOf(last));
  // It is over, and stays so under a file of as few.
  JobRun same(folder("job"), smallJob(2, 2, 5));
  const ProgramEnd again = same.launchAndWait();
  EXPECT_EQ(again.code, 0) << again.output;
  EXPECT_THAT(again.output, HasSubstr("has finished already"));
}

// The number holds for a coordinator that starts again and returns to a checkpoint.
TEST_F(StepsTest, AKilledCoordinatorKeepsTheNumber) {
  JobRun run(folder("job"), smallJob(2, 2, 100'000));
  run.launch(run.slowSteps());
  ASSERT_TRUE(run.reaches("worker-0", 3));
  ASSERT_NO_FATAL_FAILURE(edit(run, 100'000, 200));
  ASSERT_TRUE(moved(run, 100'000, 200)) << run.taskLog("ps-0");
  ASSERT_NO_FATAL_FAILURE(killTask(run, "ps-0"));
  const ProgramEnd end = run.releaseAndWait();
  ASSERT_EQ(end.code, 0) << end.output;
  EXPECT_THAT(end.lastLine(), StartsWith("result: succeeded steps=200 "));
  EXPECT_EQ(run.digest(), digestOfARunOf(200));
}

TEST_F(StepsTest, AsynchronousPushesToo) {
  JobRun run(folder("job"), smallJob(2, 2, 100'000),
             {"--set", "training.deterministic=false", "--set", "training.update.mode=Async",
              "--set", "training.update.aggregate=2"});
  run.launch(run.slowSteps());
  ASSERT_TRUE(run.reaches("worker-0", 5));
  const auto processes = processesOf(run);
  ASSERT_NO_FATAL_FAILURE(edit(run, 100'000, 200));
  ASSERT_TRUE(moved(run, 100'000, 200)) << run.taskLog("ps-0");
  EXPECT_EQ(processesOf(run), processes);
  const ProgramEnd end = run.releaseAndWait();
  ASSERT_EQ(end.code, 0) << end.output;
  EXPECT_THAT(end.lastLine(), StartsWith("result: succeeded steps=200 "));
  EXPECT_EQ(run.checkpointSteps().back(), 200);
  std::size_t pushes = 0;
  for (const char* task : {"worker-0", "worker-1"}) pushes += run.positions(task).size();
  EXPECT_EQ(pushes, 2u * 200u);
}

}  // namespace
}  // namespace trainyard
