// Jobs of which one task alone has the disk for checkpoints: the others' parts go to it, and come
// from it, by the network.
#include <csignal>
#include <filesystem>
#include <iterator>

#include "base/process/files.h"
#include "tests/multiproc/run_fixture.h"

namespace trainyard {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

class OneDiskTest : public RunTest {
 protected:
  static std::vector<std::string> flags(std::vector<std::string> sets) {
    std::vector<std::string> words = {"--set", "storage.access=Coordinator"};
    for (std::string& set : sets) words.insert(words.end(), {"--set", std::move(set)});
    return words;
  }
  // How many of the chief's files are there a second time, the same to the end.
  static int copiedRecords(const std::filesystem::path& job_dir) {
    int copied = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(job_dir / "records")) {
      if (!entry.is_regular_file()) continue;
      const auto name = entry.path().lexically_relative(job_dir / "records");
      const auto copy = readFile(entry.path(), 1 << 20),
                 original = readFile(job_dir / name, 1 << 20);
      EXPECT_TRUE(copy.ok() && original.ok() && !copy->empty() && *copy == *original) << name;
      ++copied;
    }
    return copied;
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
  const std::filesystem::directory_iterator events(run.dir() / "events");
  EXPECT_EQ(copiedRecords(run.dir()),
            1 + std::distance(events, std::filesystem::directory_iterator()));
}

TEST_F(OneDiskTest, ARingsMembersGoOnFromIt) {
  const std::string yaml = smallJob(1, 3, 160);
  const std::vector<std::string> ring = {"strategy=AllReduce",
                                         "ps=", "training.checkpoint.everySeconds=1"};
  JobRun run(folder("ring"), yaml, flags(ring));
  run.launch(run.slowSteps());
  ASSERT_TRUE(run.hasCheckpoint());
  // All of them, or the others would go on from what one of them holds; none sees another die.
  for (const int signal : {SIGSTOP, SIGKILL}) {
    for (const char* task : {"worker-0", "worker-1", "worker-2"})
      ASSERT_NO_FATAL_FAILURE(killTask(run, task, signal));
  }
  const ProgramEnd end = run.releaseAndWait();
  EXPECT_EQ(end.code, 0) << end.output;
  EXPECT_EQ(run.digest(), undisturbedDigest(yaml));
  EXPECT_GT(run.json("status.json").at("status").value("restarts", 0), 0) << "nobody has died";
  EXPECT_THAT(run.taskLog("worker-0"), ContainsRegex("from checkpoint step-[1-9]"));
}

TEST_F(OneDiskTest, ASuspendedJobIsTakenUpAgain) {
  const std::string yaml = smallJob(2, 2, 120);
  JobRun run(folder("twice"), yaml, flags({}));
  run.launch(run.slowSteps(40));
  ASSERT_TRUE(run.reaches("worker-0", 40));
  ASSERT_TRUE(run.launcher().signal(SIGINT).ok());
  EXPECT_EQ(run.wait().code, 130);
  const ProgramEnd end = run.launchAndWait();
  EXPECT_EQ(end.code, 0) << end.output;
  EXPECT_EQ(run.digest(), undisturbedDigest(yaml));
}

}  // namespace
}  // namespace trainyard
