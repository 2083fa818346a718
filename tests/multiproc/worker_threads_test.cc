// How many threads workers of a local run compute with (training.threads), and that a deterministic
// job's result does not depend on the machine by way of them.
#include <sched.h>

#include "base/process/cpus.h"
#include "fmt/format.h"
#include "tests/multiproc/run_fixture.h"

namespace trainyard {
namespace {

using testing::HasSubstr;

class WorkerThreadsTest : public RunTest {
 protected:
  void SetUp() override {
    ASSERT_EQ(::sched_getaffinity(0, sizeof(all_), &all_), 0);
    if (availableCpus(usableCores()).cores < 2) GTEST_SKIP() << "needs two cores";
    onCores(2);
  }
  void TearDown() override { (void)::sched_setaffinity(0, sizeof(all_), &all_); }

  // What is launched from now on may run on the first `n` cores only.
  void onCores(int n) const {
    cpu_set_t some;
    CPU_ZERO(&some);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&some) < n; ++cpu) {
      if (CPU_ISSET(cpu, &all_)) CPU_SET(cpu, &some);
    }
    ASSERT_EQ(::sched_setaffinity(0, sizeof(some), &some), 0);
  }

  static std::vector<std::string> setting(const std::vector<std::string>& sets) {
    std::vector<std::string> flags;
    for (const std::string& set : sets) flags.insert(flags.end(), {"--set", set});
    return flags;
  }

  // The convolutional network, on data for `steps` of them.
  static std::vector<std::string> convolutional(const std::string& threads) {
    return setting({"training.model={name: mnist_cnn, dropout: 0.5}",
                    "training.data={format: synthetic, shape: [28, 28, 1], classes: 10, "
                    "samples: 600, evalSamples: 50}",
                    "training.threads=" + threads});
  }

  // The directory's entries are the process's threads.
  static int threadsOf(pid_t pid) {
    int count = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid))) {
      count += entry.is_directory() ? 1 : 0;
    }
    return count;
  }

  int threadsAtWork(const std::string& threads) {
    JobRun run(folder("of-" + threads), smallJob(1, 1, 100000), convolutional(threads));
    run.launch();
    EXPECT_TRUE(run.reaches("worker-0", 2));
    EXPECT_THAT(run.taskLog("worker-0"),
                HasSubstr(fmt::format("computing with {} thread", threads)));
    return threadsOf(run.runtimePid("worker-0"));
  }

  std::string digestOf(const std::string& name, const std::string& threads) {
    JobRun run(folder(name), smallJob(1, 1, 20), convolutional(threads));
    const ProgramEnd end = run.launchAndWait();
    EXPECT_EQ(end.code, 0) << end.output;
    return run.digest();
  }

  cpu_set_t all_;
};

TEST_F(WorkerThreadsTest, AutoSharesTheMachineAmongItsWorkers) {
  const std::vector<std::string> flags = setting({"training.deterministic=false"});
  JobRun one(folder("one"), smallJob(1, 1, 10), flags);
  ASSERT_EQ(one.launchAndWait().code, 0) << one.output();
  EXPECT_THAT(one.taskLog("worker-0"),
              HasSubstr("computing with 2 threads (training.threads: Auto, 2 cores "));
  JobRun two(folder("two"), smallJob(1, 2, 10), flags);
  ASSERT_EQ(two.launchAndWait().code, 0) << two.output();
  for (const char* worker : {"worker-0", "worker-1"}) {
    EXPECT_THAT(two.taskLog(worker),
                testing::ContainsRegex("computing with 1 thread \\(training.threads: Auto, 2 cores "
                                       ".*, shared by 2 processes\\)"));
  }
  EXPECT_THAT(one.json("environment.json")["runtime"].value("threads", ""),
              HasSubstr("computing with 2 threads"));
}

// What the number of threads of one process is otherwise, gRPC decides; it varies by a few.
TEST_F(WorkerThreadsTest, SoManyThreadsAreThere) {
  const int with_one = threadsAtWork("1");
  const int with_many = threadsAtWork("40");
  EXPECT_GE(with_many - with_one, 20) << with_one << " and " << with_many;
}

TEST_F(WorkerThreadsTest, ADeterministicJobGivesTheSameBitsOnAnyNumberOfCores) {
  const std::string want = digestOf("two-cores", "Auto");
  const std::string two_threads = digestOf("two-threads", "2");
  EXPECT_EQ(digestOf("again", "2"), two_threads);
  EXPECT_NE(two_threads, want) << "sums are cut by the number of threads";
  onCores(1);
  EXPECT_EQ(digestOf("one-core", "Auto"), want);
  EXPECT_EQ(digestOf("two-threads-on-one-core", "2"), two_threads);
}

}  // namespace
}  // namespace trainyard
