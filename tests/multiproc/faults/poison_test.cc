// One worker of three computes something that is not finite: the job ends, names where, and what is
// on the disk is good.
#include <string_view>

#include "base/core/strings.h"
#include "fmt/format.h"
#include "tests/multiproc/run_fixture.h"

namespace trainyard {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::StartsWith;

constexpr int kPoisonSteps = 120;

class PoisonTest : public RunTest {
 protected:
  // N of "worker-1: step N"; -1: there is no such word.
  static std::int64_t stepOf(const std::string& line) {
    constexpr std::string_view kWord = "worker-1: step ";
    const std::size_t at = line.find(kWord);
    if (at == std::string::npos) return -1;
    const std::string_view rest = std::string_view(line).substr(at + kWord.size());
    const std::size_t digits = rest.find_first_not_of("0123456789");
    return parseNumber<std::int64_t>(rest.substr(0, digits)).value_or(-1);
  }
  // The digest of the undisturbed job after that many steps.
  std::string undisturbed(std::int64_t steps) {
    JobRun run(folder(fmt::format("steps-{}", steps)), smallJob(2, 3, static_cast<int>(steps)));
    EXPECT_EQ(run.launchAndWait().code, 0);
    return run.digest();
  }
};

TEST_F(PoisonTest, TheJobFailsAndTheLastCheckpointIsOfFiniteWeights) {
  JobRun run(folder("nan"), smallJob(2, 3, kPoisonSteps) + "    checkpoint: {everySeconds: 1}\n");
  run.launch(fmt::format("worker.gradient=nan,task=worker-1,while={};{}",
                         (root() / "poison").string(), run.slowSteps()));
  ASSERT_TRUE(run.hasCheckpoint());
  writeText("poison", "");
  const ProgramEnd end = run.wait();
  EXPECT_EQ(end.code, 1);
  EXPECT_THAT(end.lastLine(), StartsWith("result: failed reason="));
  const std::int64_t poisoned = stepOf(end.lastLine());
  EXPECT_LT(poisoned, kPoisonSteps);
  EXPECT_THAT(end.lastLine(), ContainsRegex("variable (hidden1|output)_(wei|bia)"));
  EXPECT_TRUE(processesWith(run.dir().string()).empty());
  ASSERT_FALSE(run.checkpointSteps().empty());
  const std::int64_t committed = run.checkpointSteps().back();
  ASSERT_GT(committed, 0);
  EXPECT_LE(committed, poisoned);
  EXPECT_EQ(run.digest(), undisturbed(committed));
  // Without the poison the job goes on from it.
  run.launch();
  EXPECT_EQ(run.wait().code, 0);
  EXPECT_THAT(run.output(), HasSubstr(fmt::format("resuming 'small' from step {} ", committed)));
  EXPECT_EQ(run.digest(), undisturbed(kPoisonSteps));
}

}  // namespace
}  // namespace trainyard
