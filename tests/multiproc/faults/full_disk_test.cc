// The disk is full while checkpoints are to be written: the former one stays, training goes on, and
// that is said once; only the last checkpoint must succeed.
#include <signal.h>

#include "fmt/format.h"
#include "tests/multiproc/faults/small_disk.h"
#include "tests/multiproc/run_fixture.h"
#include "tests/multiproc/table_jobs.h"

namespace trainyard {
namespace {

using testing::HasSubstr;

constexpr int kFullDiskSteps = 200;
constexpr Duration kFullDiskPatience = std::chrono::seconds(300);

std::string job() {
  return smallJob(2, 3, kFullDiskSteps) + "    checkpoint: {everySeconds: 1}\n";
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

class FullDiskTest : public RunTest {
 protected:
  FullDiskTest() : real_(SmallDisk::possible()) {
    if (!real_) fmt::print("no mounts here: the disk's refusal is played by a failpoint\n");
  }

  // The digest of the job with a disk that has room, once for all tests.
  static std::string undisturbed() {
    static const std::string digest = [] {
      TempDir dir;
      JobRun run(dir.path(), job());
      EXPECT_EQ(run.launchAndWait().code, 0);
      return run.digest();
    }();
    return digest;
  }
  // As long as it exists, the played disk refuses what is written.
  std::filesystem::path full() const { return root() / "full-disk"; }
  // Worker-1 stops before anything is on the disk: the job waits for it.
  std::string failpoints(const JobRun& run) const {
    const std::string start = "worker.start=pause,task=worker-1,life=1.1,times=1;";
    if (real_) return start + run.slowSteps();
    return fmt::format("{}checkpoint.shard.write=error,while={};{}", start, full().string(),
                       run.slowSteps());
  }
  static int toldOfFailures(const JobRun& run) {
    return count(run.taskLog("ps-0"), "failed, training goes on");
  }
  // Launches, and fills the disk behind the first checkpoints until one has failed. The newest of
  // them. Steps are slow then.
  std::int64_t launchAndFill(JobRun& run, std::optional<SmallDisk>& disk) {
    run.launch(failpoints(run));
    EXPECT_GT(stoppedTask(run, "worker-1"), 0);
    const auto folder = run.dir() / "checkpoints";  // a ps has made it
    EXPECT_TRUE(eventually([&] { return std::filesystem::exists(folder); }, kFullDiskPatience));
    if (real_) disk.emplace(folder);
    killTask(run, "worker-1", SIGCONT);
    EXPECT_TRUE(run.hasCheckpoint());
    if (!real_) writeText(full().filename(), "");
    const auto failed = [&] {
      const bool told = toldOfFailures(run) > 0;
      // Again and again: what is removed of former and failed ones makes room.
      if (real_) disk->fill();
      return told;
    };
    EXPECT_TRUE(eventually(failed, kFullDiskPatience));
    return run.newestCheckpoint();
  }
  void makeRoom(std::optional<SmallDisk>& disk) {
    if (real_) {
      disk->makeRoom();
    } else {
      EXPECT_TRUE(std::filesystem::remove(full()));
    }
  }
  // While the disk is full for a time. The job succeeds; its checkpoints are on `disk`.
  void trainThrough(JobRun& run, std::optional<SmallDisk>& disk) {
    const std::int64_t committed = launchAndFill(run, disk);
    ASSERT_GT(committed, 0);
    // Two seconds, in which others fail.
    EXPECT_TRUE(run.reaches("worker-1", run.positions("worker-1").back().step + 20));
    EXPECT_EQ(toldOfFailures(run), 1) << "more than one did";
    EXPECT_EQ(run.newestCheckpoint(), committed);
    EXPECT_NE(run.digest(), "") << "which can still be read";
    makeRoom(disk);
    run.releaseSteps();
    const ProgramEnd end = run.wait(kFullDiskPatience);
    EXPECT_EQ(end.code, 0);
  }

  const bool real_;
};

TEST_F(FullDiskTest, TheFormerCheckpointStaysAndTrainingGoesOn) {
  JobRun run(folder("full"), job());
  std::optional<SmallDisk> disk;
  trainThrough(run, disk);
  EXPECT_EQ(run.json("status.json").at("status").value("lostSteps", 0), 0);
  EXPECT_EQ(run.digest(), undisturbed());
}

TEST_F(FullDiskTest, WithoutTheLastCheckpointTheJobFailsAndCanBeResumed) {
  JobRun run(folder("still-full"), job());
  std::optional<SmallDisk> disk;
  const std::int64_t committed = launchAndFill(run, disk);
  ASSERT_GT(committed, 0);
  run.releaseSteps();
  const ProgramEnd end = run.wait(kFullDiskPatience);
  EXPECT_EQ(end.code, 1);
  EXPECT_THAT(end.lastLine(), HasSubstr(fmt::format("the last checkpoint (step {}) could not be "
                                                    "written: ps-",
                                                    kFullDiskSteps)));
  EXPECT_THAT(end.lastLine(), HasSubstr(real_ ? "no space left" : "failpoint"));
  EXPECT_EQ(run.newestCheckpoint(), committed);
  makeRoom(disk);
  run.launch();
  EXPECT_EQ(run.wait(kFullDiskPatience).code, 0);
  EXPECT_THAT(run.output(), HasSubstr(fmt::format("resuming 'small' from step {} ", committed)));
  EXPECT_EQ(run.digest(), undisturbed());
}

// What a delta is of stays what the next ones are of, too.
TEST_F(FullDiskTest, AChainOfDeltasStaysAndGoesOn) {
  const std::string tables = tablesJob(2, 3, kFullDiskSteps);
  JobRun run(folder("deltas"), tables,
             {"--set", "training.checkpoint.everySeconds=1", "--set",
              "training.checkpoint.full.everySeconds=3600"});
  std::optional<SmallDisk> disk;
  trainThrough(run, disk);
  EXPECT_THAT(run.taskLog("ps-0"), HasSubstr(", a delta of step-"));
  EXPECT_EQ(run.digest(), undisturbedDigest(tables));
}

}  // namespace
}  // namespace trainyard
