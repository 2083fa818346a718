// Jobs of which one task alone has the disk for checkpoints: the others' parts go to it, and come
// from it, by the network.
#include <csignal>

#include "tests/multiproc/run_fixture.h"

namespace trainyard {
namespace {

using testing::HasSubstr;

class OneDiskTest : public RunTest {
 protected:
  static std::vector<std::string> flags(std::vector<std::string> sets) {
    std::vector<std::string> words = {"--set", "storage.access=Coordinator"};
    for (std::string& set : sets) words.insert(words.end(), {"--set", std::move(set)});
    return words;
  }
};

TEST_F(OneDiskTest, AfterADeathAllServersGoOnFromTheirCheckpoint) {
  const std::string yaml = smallJob(3, 2, 160);
  JobRun run(folder("servers"), yaml,
             flags({"training.chunkReplicas=Never", "training.checkpoint.everySeconds=1"}));
  const ProgramEnd end =
      run.launchAndWait("worker.compute=delay(25)@0-110;ps.request=crash@100,task=ps-1,life=1.1");
  EXPECT_EQ(end.code, 0) << end.output;
  EXPECT_EQ(run.digest(), undisturbedDigest(yaml));
  EXPECT_THAT(run.taskLog("ps-0"), HasSubstr("from checkpoint step-"));
}

TEST_F(OneDiskTest, ARingsMembersGoOnFromIt) {
  const std::string yaml = smallJob(1, 3, 160);
  const std::vector<std::string> ring = {"strategy=AllReduce",
                                         "ps=", "training.checkpoint.everySeconds=1"};
  JobRun run(folder("ring"), yaml, flags(ring));
  const ProgramEnd end = run.launchAndWait(
      "worker.compute=delay(25)@0-110;worker.compute=crash@100,task=worker-1,life=1.1");
  EXPECT_EQ(end.code, 0) << end.output;
  EXPECT_EQ(run.digest(), undisturbedDigest(yaml));
}

TEST_F(OneDiskTest, ASuspendedJobIsTakenUpAgain) {
  const std::string yaml = smallJob(2, 2, 120);
  JobRun run(folder("twice"), yaml, flags({}));
  run.launch("worker.compute=delay(25)");
  ASSERT_TRUE(run.reaches("worker-0", 40));
  ASSERT_TRUE(run.launcher().signal(SIGINT).ok());
  EXPECT_EQ(run.wait().code, 130);
  const ProgramEnd end = run.launchAndWait();
  EXPECT_EQ(end.code, 0) << end.output;
  EXPECT_EQ(run.digest(), undisturbedDigest(yaml));
}

}  // namespace
}  // namespace trainyard
