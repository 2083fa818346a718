// The demonstration in small: real images, 2 parameter servers, 2 workers; who runs under whom,
// what is printed at the end, and that every sample is used once in each pass.
#include <cstdlib>
#include <set>

#include "base/process/files.h"
#include "fmt/format.h"
#include "runtime/data/sample_stream.h"
#include "tests/multiproc/run_fixture.h"

namespace trainyard {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr char kImages[] = "/usr/share/datasets/fashion-mnist";
const std::vector<std::string> kTasks = {"ps-0", "ps-1", "worker-0", "worker-1"};

std::string demoJob() {
  const char* source = std::getenv("TRAINYARD_SOURCE");
  const std::string path =
      fmt::format("{}/examples/fashion-mnist/ps-sync.yaml", source == nullptr ? "." : source);
  const auto text = readFile(path, 1 << 20);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

class DemoTest : public RunTest {};

TEST_F(DemoTest, TrainsRealImagesUnderAgentsAndEvaluatesTheSame) {
  JobRun run(folder("demo"), demoJob(),
             {"--volume", fmt::format("data={}", kImages), "--set", "training.steps=40"});
  run.launch();
  ASSERT_TRUE(run.reaches("worker-0", 2));
  std::set<pid_t> runtimes;
  for (const std::string& task : kTasks) {
    const pid_t runtime = run.runtimePid(task);
    runtimes.insert(runtime);
    EXPECT_THAT(commandOf(runtime),
                HasSubstr("trainyard-runtime " + task.substr(0, task.find('-'))))
        << task;
    EXPECT_EQ(parentOf(runtime), run.agentPid(task)) << task;
    EXPECT_THAT(commandOf(parentOf(runtime)), HasSubstr("trainyard-agent --role")) << task;
    EXPECT_EQ(parentOf(run.agentPid(task)), run.launcher().pid()) << task;
  }
  EXPECT_EQ(runtimes.size(), 4u);
  const ProgramEnd end = run.wait(std::chrono::seconds(150));
  ASSERT_EQ(end.code, 0);
  EXPECT_THAT(end.lastLine(), StartsWith("result: succeeded steps=40 accuracy="));
  auto result = fieldsOf(end.lastLine());
  EXPECT_EQ(result["dir"], run.dir().string());
  // Chance is 0.1.
  EXPECT_GT(std::stod(result["accuracy"]), 0.3);
  EXPECT_GT(std::stod(result["examples_per_second"]), 0);
  EXPECT_TRUE(processesWith(root().string()).empty()) << "all are gone when the launcher is";

  const ProgramEnd evaluated = program({"trainyard", "checkpoint", "evaluate", run.dir().string()});
  ASSERT_EQ(evaluated.code, 0) << evaluated.output;
  auto fields = fieldsOf(evaluated.lastLine());
  EXPECT_EQ(fields["accuracy"], result["accuracy"]) << evaluated.output;
  EXPECT_EQ(fields["step"], "40");
  EXPECT_EQ(fields["samples"], "10000");
  expectEachPositionOnce(run, 2, 40 * 2 * 128);
}

// 3 workers of 16 samples, 1,000 samples: batches lie across the ends of the passes. The stream as
// the workers look it up maps the positions of a pass to each sample once.
TEST_F(DemoTest, EachSampleIsUsedOnceInEachPass) {
  constexpr std::int64_t kSamples = 1000;
  constexpr int kSteps = 63;
  JobRun run(folder("passes"), smallJob(2, 3, kSteps), {"--set", "training.data.samples=1000"});
  ASSERT_EQ(run.launchAndWait().code, 0);
  const std::map<std::int64_t, int> uses = usesOfPositions(run, 3);
  expectEachPositionOnce(run, 3, kSteps * 3 * 16);
  runtime::SampleStream stream(/*seed=*/3, kSamples);
  std::map<std::int64_t, std::map<std::int64_t, int>> used;  // by pass, then sample
  for (const auto& [position, count] : uses) {
    std::int64_t sample = -1;
    stream.lookUp(position, {&sample, 1});
    used[position / kSamples][sample] += count;
  }
  ASSERT_EQ(used.size(), 4u);
  for (std::int64_t pass = 0; pass < 3; ++pass) {
    ASSERT_EQ(static_cast<std::int64_t>(used[pass].size()), kSamples) << "pass " << pass;
    EXPECT_EQ(used[pass].begin()->first, 0);
    EXPECT_EQ(used[pass].rbegin()->first, kSamples - 1);
    for (const auto& [sample, count] : used[pass]) ASSERT_EQ(count, 1) << "sample " << sample;
  }
}

}  // namespace
}  // namespace trainyard
