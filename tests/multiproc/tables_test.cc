// Jobs with embedding tables: what they learn is one result, whatever the number of servers and who
// dies on the way.
#include "fmt/format.h"
#include "tests/multiproc/run_fixture.h"

namespace trainyard {
namespace {

using testing::HasSubstr;

// Two columns of ids, one of them looked up in two tables, and numbers.
std::string tablesJob(int ps, int workers, int steps, int users = 3000) {
  return fmt::format(R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {{name: tables}}
spec:
  ps: {{replicas: {}}}
  worker: {{replicas: {}}}
  training:
    model: {{name: wide_and_deep, hidden: [16, 8]}}
    data:
      format: synthetic_ctr
      columns:
      - {{name: user, kind: Id, ids: {}}}
      - {{name: item, kind: Id, ids: 500}}
      - {{name: age, kind: Number}}
      - {{name: click, kind: Label}}
      samples: 20000
      evalSamples: 1000
    tables:
    - {{name: user, features: [user], dim: 4, rows: {{max: 10000}}, initial: {{distribution: TruncatedNormal, scale: 0.01}}}}
    - {{name: item, features: [item], dim: 8, rows: {{max: 10000}}, initial: {{distribution: Uniform, scale: 0.01}}, optimizer: {{name: Adam, learningRate: 0.01}}}}
    - {{name: wide, features: [user, item], dim: 1, rows: {{max: 10000}}, optimizer: {{name: Ftrl, learningRate: 0.1}}}}
    batchSize: 32
    steps: {}
    seed: 3
    deterministic: true
    optimizer: {{name: Adagrad, learningRate: 0.05}}
)",
                     ps, workers, users, steps);
}

class TablesTest : public RunTest {
 protected:
  std::string digestOf(const std::string& name, const std::string& yaml,
                       const std::string& failpoints = "") {
    JobRun run(folder(name), yaml);
    const ProgramEnd end = run.launchAndWait(failpoints);
    EXPECT_EQ(end.code, 0) << end.output;
    return end.code == 0 ? run.digest() : name + " failed";
  }
};

TEST_F(TablesTest, OneResultWhateverTheNumberOfServersAndWhoIsLate) {
  const std::string want = digestOf("one", tablesJob(1, 3, 120));
  EXPECT_EQ(
      digestOf("two", tablesJob(2, 3, 120),
               "worker.push=delay(4)@20-35,task=worker-0;ps.request=delay(1)@60-70,task=ps-1"),
      want);
  EXPECT_EQ(digestOf("three", tablesJob(3, 3, 120), "worker.compute=delay(4)@50-70,task=worker-2"),
            want);
  JobRun other(folder("other"), tablesJob(1, 3, 120), {"--set", "training.seed=4"});
  EXPECT_EQ(other.launchAndWait().code, 0);
  EXPECT_NE(other.digest(), want);
}

// A worker that dies takes no row with it, and no step.
TEST_F(TablesTest, AWorkersDeathLosesNoStep) {
  JobRun run(folder("run"), tablesJob(2, 2, 150));
  const ProgramEnd end = run.launchAndWait("worker.push=crash@70,task=worker-1,life=1.1");
  EXPECT_EQ(end.code, 0) << end.output;
  EXPECT_EQ(run.digest(), undisturbedDigest(tablesJob(2, 2, 150)));
  EXPECT_EQ(run.json("status.json")["status"].value("lostSteps", std::int64_t{0}), 0);
  expectEachPositionOnce(run, 2, std::int64_t{150} * 2 * 32);
}

// Rows have no replicas: all return to the newest checkpoint, to the same bits in the end.
TEST_F(TablesTest, AServersDeathReturnsToTheCheckpoint) {
  JobRun run(folder("run"), tablesJob(2, 2, 150), {"--set", "training.checkpoint.everySeconds=1"});
  const ProgramEnd end =
      run.launchAndWait("worker.compute=delay(20);ps.request=crash@110,task=ps-1,life=1.1");
  EXPECT_EQ(end.code, 0) << end.output;
  EXPECT_EQ(run.digest(), undisturbedDigest(tablesJob(2, 2, 150)));
  EXPECT_GT(run.json("status.json")["status"].value("lostSteps", std::int64_t{0}), 0);
}

TEST_F(TablesTest, AJobThatWasInterruptedGoesOn) {
  JobRun run(folder("run"), tablesJob(2, 2, 150));
  run.launch("worker.compute=delay(15)");
  ASSERT_TRUE(run.reaches("worker-0", 60));
  ASSERT_TRUE(run.launcher().signal(SIGINT).ok());
  run.wait();
  const std::vector<std::int64_t> steps = run.checkpointSteps();
  ASSERT_FALSE(steps.empty());
  EXPECT_GE(steps.back(), 60);
  EXPECT_LT(steps.back(), 150);
  const ProgramEnd end = run.launchAndWait();
  EXPECT_EQ(end.code, 0) << end.output;
  EXPECT_EQ(run.digest(), undisturbedDigest(tablesJob(2, 2, 150)));
}

// Better than to say of everything that it is not clicked on; `checkpoint evaluate` reads the same
// of the checkpoint.
TEST_F(TablesTest, LearnsAndIsEvaluated) {
  JobRun run(folder("run"), tablesJob(2, 2, 600), {"--set", "training.data.samples=40000"});
  const ProgramEnd end = run.launchAndWait();
  ASSERT_EQ(end.code, 0) << end.output;
  auto trained = fieldsOf(end.lastLine());
  EXPECT_GT(std::stod(trained["accuracy"]), 0.7);
  EXPECT_GT(std::stod(trained["auc"]), 0.65);
  const ProgramEnd scored = program({"trainyard", "checkpoint", "evaluate", run.dir().string()});
  ASSERT_EQ(scored.code, 0) << scored.output;
  auto read = fieldsOf(scored.lastLine());
  EXPECT_EQ(read["accuracy"], trained["accuracy"]);
  EXPECT_EQ(read["auc"], trained["auc"]);
}

TEST_F(TablesTest, ATableThatIsFullEndsTheJobAndIsNamed) {
  JobRun run(folder("run"), tablesJob(1, 1, 600, 2'000'000),
             {"--set", "training.batchSize=512", "--set", "training.data.samples=300000"});
  const ProgramEnd end = run.launchAndWait();
  EXPECT_NE(end.code, 0) << end.output;
  EXPECT_THAT(end.output, HasSubstr("table user"));
  EXPECT_THAT(end.output, HasSubstr("rows.max is 10,000"));
}

}  // namespace
}  // namespace trainyard
