// `trainyard plan` as a process: the published figures of the cost model, and answers to wrong
// flags.
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "base/core/strings.h"
#include "base/process/child_process.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard::cli {
namespace {

using ::testing::HasSubstr;

struct PlanAnswer {
  int code = -1;
  std::string text;  // both streams
};

// `words` are separated by single spaces.
PlanAnswer plan(const std::string& words) {
  SpawnOptions spawn;
  spawn.argv = {std::string(std::getenv("TRAINYARD_BIN")) + "/trainyard", "plan"};
  for (const std::string_view word : split(words, ' ')) spawn.argv.emplace_back(word);
  spawn.cwd = std::getenv("TRAINYARD_SOURCE");
  PlanAnswer answer;
  std::mutex mutex;
  spawn.on_line = [&](std::string_view line) {
    std::lock_guard lock(mutex);
    answer.text += std::string(line) + "\n";
  };
  auto child = ChildProcess::spawn(spawn);
  EXPECT_TRUE(child.ok()) << child.status();
  if (!child.ok()) return answer;
  const auto exit = child->wait(systemClock().now() + std::chrono::seconds(60));
  EXPECT_TRUE(exit.ok()) << exit.status();
  if (exit.ok()) answer.code = exit->code;
  { const ChildProcess ended = *std::move(child); }  // its last lines have been read then
  return answer;
}

void expectSplit(const std::string& words, const std::string& split) {
  const PlanAnswer answer = plan(words);
  EXPECT_EQ(answer.code, 0);
  EXPECT_THAT(answer.text, HasSubstr("best split of 16 machines  " + split));
  EXPECT_THAT(answer.text, HasSubstr("half duplex (factor 2)"));
}

TEST(PlanProgram, PublishedSplits) {
  const std::string machines = "--machines 16 --duplex half ";
  expectSplit(machines + "--model vgg19 --bandwidth 10Gbit --step-seconds 0.6",
              "8 workers + 8 ps (50.0 %");
  expectSplit(machines + "--parameters 25.6M --bandwidth 10Gbit --step-seconds 0.3",
              "9 workers + 7 ps (57.5 %");
  expectSplit(machines + "--parameters 25.6M --bandwidth 25Gbit --step-seconds 0.3",
              "11 workers + 5 ps (68.1 %");
}

TEST(PlanProgram, AJobsServersOnItsLinks) {
  const std::string link = " --set worker.replicas=7 --bandwidth 1Gbit --step-seconds 0.2";
  const PlanAnswer hot = plan("-f examples/placement/mnist-roundrobin.yaml" + link);
  EXPECT_EQ(hot.code, 0);
  EXPECT_THAT(hot.text, HasSubstr("ps1                            0.7333 s      0.838 s\n"));
  EXPECT_THAT(hot.text, HasSubstr("full duplex (factor 1)"));
  const PlanAnswer even = plan("-f examples/placement/mnist-balanced.yaml" + link);
  EXPECT_THAT(even.text, HasSubstr("0.4192 s"));
  EXPECT_THAT(even.text, HasSubstr("step of this job       0.6192 s"));
  const PlanAnswer alone = plan("-f examples/placement/mnist-balanced.yaml" + link +
                                " --set training.chunkReplicas=Never");
  EXPECT_THAT(alone.text, HasSubstr("0.3668 s"));
  EXPECT_THAT(alone.text, HasSubstr("step of this job       0.5668 s"));
}

TEST(PlanProgram, WrongFlagsAreNamed) {
  const auto refused = [](const std::string& words, const std::string& what) {
    const PlanAnswer answer = plan(words);
    EXPECT_EQ(answer.code, 2) << words;
    EXPECT_THAT(answer.text, HasSubstr(what)) << words;
    EXPECT_EQ(split(answer.text, '\n').size(), 2u) << "one line: " << answer.text;
  };
  const std::string vgg = "--model vgg19 --machines 4 --step-seconds 1";
  refused(vgg + " --bandwidth 10Gbps", "--bandwidth: \"10Gbps\" is no rate such as 10Gbit");
  refused(vgg, "--bandwidth: missing");
  refused("--model vgg19 --machines 4 --bandwidth 1Gbit", "--step-seconds: missing");
  refused(vgg + " --bandwidth 1Gbit --scale 8", "--scale: \"8\" is no range such as 1..128");
  refused(vgg + " --bandwidth 1Gbit --scale 8..4", "--scale: \"8..4\"");
  refused(vgg + " --bandwidth 1Gbit --duplex both", "--duplex");
  refused(vgg + " --bandwidth 1Gbit --parameters 3", "only one of -f FILE, --model NAME");
  refused("--machines 4 --bandwidth 1Gbit --step-seconds 1", "needs one of -f FILE, --model NAME");
  refused("--parameters 3x --machines 4 --bandwidth 1Gbit --step-seconds 1",
          "--parameters: \"3x\" is no number");
  refused("--model vgg18 --machines 4 --bandwidth 1Gbit --step-seconds 1",
          "--model: \"vgg18\" is none of");
  refused("--model vgg19", "--machines or --scale: missing");
  refused("--model vgg19 --machines 1 --bandwidth 1Gbit --step-seconds 1", "--machines: expected");
  refused("--model vgg19 --machines 4 --bandwidth 1Gbit --step-seconds 0", "--step-seconds: \"0\"");
}

}  // namespace
}  // namespace trainyard::cli
