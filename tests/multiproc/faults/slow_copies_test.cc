// Copies and writes of a large model take longer than a silent member is waited for: nobody is
// taken for dead, and what else happens to the job does not wait for them.
#include <signal.h>

#include "fmt/format.h"
#include "tests/multiproc/run_fixture.h"

namespace trainyard {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int kSlowCopiesSteps = 400;
constexpr Duration kSlowCopiesPatience = std::chrono::seconds(300);

class SlowCopiesTest : public RunTest {
 protected:
  static std::string job() {
    return smallJob(2, 2, kSlowCopiesSteps) + "    checkpoint: {everySeconds: 1}\n";
  }
  static testing::AssertionResult says(const JobRun& run, const char* task, const char* text) {
    const bool said = eventually([&] { return run.taskLog(task).find(text) != std::string::npos; },
                                 kSlowCopiesPatience);
    return said ? testing::AssertionSuccess() : testing::AssertionFailure() << task << ": " << text;
  }
};

// The copy of the fresh start's checkpoint takes 17 s, 17 chunks: three times as long as a silent
// member is waited for.
TEST_F(SlowCopiesTest, NobodyFallsSilent) {
  std::string large = smallJob(2, 2, /*steps=*/20);
  const auto replace = [&](const std::string& from, const std::string& to) {
    large.replace(large.find(from), from.size(), to);
  };
  replace("hidden: [32]", "hidden: [2048]");
  replace("shape: [8, 8, 1]", "shape: [64, 64, 1]");  // 32 MiB of weights
  JobRun run(folder("copy"), large);
  const ProgramEnd end = run.launchAndWait("ps.capture=delay(1000)@0,task=ps-1");
  EXPECT_EQ(end.code, 0) << run.output();
  EXPECT_THAT(run.taskLog("ps-0"), Not(HasSubstr("has not been heard of")));
  EXPECT_THAT(run.taskLog("ps-0"), Not(HasSubstr("epoch 1 ends")));
  EXPECT_EQ(run.digest(), undisturbedDigest(large));
}

// A worker dies while a checkpoint is being written, which does not end before the server dies,
// too.
TEST_F(SlowCopiesTest, AnEpochDoesNotWaitForADisk) {
  JobRun run(folder("write"), job());
  run.launch(
      "ps.snapshot=delay(600000)@1-1000,task=ps-1,life=1.1,times=1;worker.compute=delay(20)");
  ASSERT_TRUE(says(run, "ps-1", "failpoint ps.snapshot at"));
  ASSERT_NO_FATAL_FAILURE(killTask(run, "worker-1"));
  ASSERT_TRUE(says(run, "ps-0", "epoch 1 ends"));
  ASSERT_TRUE(run.reaches("worker-1", run.positions("worker-0").back().step + 20));
  ASSERT_NO_FATAL_FAILURE(killTask(run, "ps-1"));
  const ProgramEnd end = run.wait(kSlowCopiesPatience);
  EXPECT_EQ(end.code, 0) << run.output();
  EXPECT_EQ(run.json("status.json").at("status").value("lostSteps", 0), 0);
  EXPECT_EQ(run.digest(), undisturbedDigest(job()));
}

}  // namespace
}  // namespace trainyard
