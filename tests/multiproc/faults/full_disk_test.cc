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
// Steps at which worker-1 stops: behind the first checkpoints, and when some have failed.
constexpr int kFull = 90;
constexpr int kRoom = 180;
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
  // Worker-1 stops before anything is on the disk (the job waits for it), where the disk is filled,
  // and where it has room again; `last` is the last version that the played disk refuses.
  std::string failpoints(int last) const {
    std::string text = "worker.start=pause,task=worker-1,life=1.1,times=1";
    for (const int step : {kFull, kRoom}) {
      text += fmt::format(";worker.compute=pause@{},task=worker-1,life=1.1,times=1", step);
    }
    text += ";worker.compute=delay(25)";
    if (!real_) text += fmt::format(";checkpoint.shard.write=error@{}-{}", kFull, last);
    return text;
  }
  pid_t stoppedAt(const JobRun& run, const char* task) {
    pid_t pid = 0;
    const bool stopped = eventually(
        [&] {
          pid = run.runtimePid(task);
          return pid > 0 && stateOf(pid) == 'T';
        },
        kFullDiskPatience);
    EXPECT_TRUE(stopped) << task;
    return pid;
  }
  // The step of the newest checkpoint; -1: there is none.
  static std::int64_t newest(const JobRun& run) {
    const std::vector<std::int64_t> steps = run.checkpointSteps();
    return steps.empty() ? -1 : steps.back();
  }
  // Launches, and fills the disk behind the first checkpoints. The newest of them.
  std::int64_t launchAndFill(JobRun& run, std::optional<SmallDisk>& disk, int last) {
    run.launch(failpoints(last));
    pid_t worker = stoppedAt(run, "worker-1");
    const auto folder = run.dir() / "checkpoints";  // a ps has made it
    EXPECT_TRUE(eventually([&] { return std::filesystem::exists(folder); }, kFullDiskPatience));
    if (real_) disk.emplace(folder);
    ::kill(worker, SIGCONT);
    worker = stoppedAt(run, "worker-1");
    if (real_) disk->fill();
    const std::int64_t committed = newest(run);
    EXPECT_GT(committed, 0);
    ::kill(worker, SIGCONT);
    return committed;
  }
  // While the disk is full for a time. The job succeeds; its checkpoints are on `disk`.
  void trainThrough(JobRun& run, std::optional<SmallDisk>& disk) {
    const std::int64_t committed = launchAndFill(run, disk, kRoom - 1);
    const pid_t worker = stoppedAt(run, "worker-1");
    EXPECT_EQ(count(run.taskLog("ps-0"), "failed, training goes on"), 1) << "more than one did";
    EXPECT_EQ(newest(run), committed);
    EXPECT_NE(run.digest(), "") << "which can still be read";
    if (real_) disk->makeRoom();
    ::kill(worker, SIGCONT);
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
  const std::int64_t committed = launchAndFill(run, disk, kFullDiskSteps);
  ::kill(stoppedAt(run, "worker-1"), SIGCONT);
  const ProgramEnd end = run.wait(kFullDiskPatience);
  EXPECT_EQ(end.code, 1);
  EXPECT_THAT(end.lastLine(), HasSubstr(fmt::format("the last checkpoint (step {}) could not be "
                                                    "written: ps-",
                                                    kFullDiskSteps)));
  EXPECT_THAT(end.lastLine(), HasSubstr(real_ ? "no space left" : "failpoint"));
  EXPECT_EQ(newest(run), committed);
  if (real_) disk->makeRoom();
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
