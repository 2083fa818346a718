// One worker of three computes something that is not finite: the job ends, names where, and what is
// on the disk is good.
#include "fmt/format.h"
#include "tests/multiproc/run_fixture.h"

namespace trainyard {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::StartsWith;

constexpr int kPoisonSteps = 120;
constexpr int kPoisoned = 95;

class PoisonTest : public RunTest {
 protected:
  // The digest of the undisturbed job after that many steps.
  std::string undisturbed(std::int64_t steps) {
    JobRun run(folder(fmt::format("steps-{}", steps)), smallJob(2, 3, static_cast<int>(steps)));
    EXPECT_EQ(run.launchAndWait().code, 0);
    return run.digest();
  }
};

TEST_F(PoisonTest, TheJobFailsAndTheLastCheckpointIsOfFiniteWeights) {
  JobRun run(folder("nan"), smallJob(2, 3, kPoisonSteps) + "    checkpoint: {everySeconds: 1}\n");
  // Steps that last, so that a checkpoint comes before.
  const ProgramEnd end = run.launchAndWait(fmt::format(
      "worker.compute=delay(25)@0-{};worker.gradient=nan@{},task=worker-1", kPoisoned, kPoisoned));
  EXPECT_EQ(end.code, 1);
  EXPECT_THAT(end.lastLine(), StartsWith("result: failed reason="));
  EXPECT_THAT(end.lastLine(), HasSubstr(fmt::format("worker-1: step {}", kPoisoned)));
  EXPECT_THAT(end.lastLine(), ContainsRegex("variable (hidden1|output)_(wei|bia)"));
  EXPECT_TRUE(processesWith(run.dir().string()).empty());
  ASSERT_FALSE(run.checkpointSteps().empty());
  const std::int64_t committed = run.checkpointSteps().back();
  ASSERT_GT(committed, 0);
  EXPECT_LE(committed, kPoisoned);
  EXPECT_EQ(run.digest(), undisturbed(committed));
  // Without the poison the job goes on from it.
  run.launch();
  EXPECT_EQ(run.wait().code, 0);
  EXPECT_THAT(run.output(), HasSubstr(fmt::format("resuming 'small' from step {} ", committed)));
  EXPECT_EQ(run.digest(), undisturbed(kPoisonSteps));
}

}  // namespace
}  // namespace trainyard
