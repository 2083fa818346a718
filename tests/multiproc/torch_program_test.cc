// trainyard-runtime-torch beside the others, where no GPU is visible: who runs it.
#include <cstdlib>
#include <string>

#include "base/process/files.h"
#include "fmt/format.h"
#include "tests/multiproc/run_fixture.h"
#include "tests/runtime/model/script_fixture.h"

namespace trainyard {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::size_t kMaxMaps = 1 << 22;

class TorchProgramTest : public RunTest {
 protected:
  void SetUp() override { ::setenv("CUDA_VISIBLE_DEVICES", "-1", /*overwrite=*/1); }

  static bool hasLibTorch(const JobRun& run, const std::string& task) {
    const std::string maps =
        readFile(fmt::format("/proc/{}/maps", run.runtimePid(task)), kMaxMaps).value_or("");
    EXPECT_THAT(maps, HasSubstr("libprotobuf")) << task << " is there";
    return maps.find("libtorch") != std::string::npos;
  }
};

TEST_F(TorchProgramTest, ModulesLoadLibTorchAndBuiltInModelsDoNot) {
  JobRun computed(folder("computed"), smallJob(1, 1, 1000000));
  computed.launch();
  ASSERT_TRUE(computed.reaches("worker-0", 1)) << computed.output();
  for (const char* task : {"ps-0", "worker-0"}) EXPECT_FALSE(hasLibTorch(computed, task)) << task;

  const std::string file = (root() / "model.pt").string();
  writeScript(file, 36, 4);
  JobRun module(folder("module"), smallJob(1, 1, 1000000),
                {"--set", "training.model={name: torchscript, path: " + file + "}", "--set",
                 "training.data={format: synthetic, shape: [6, 6, 1], classes: 4, samples: 400}"});
  module.launch();
  ASSERT_TRUE(module.reaches("worker-0", 1)) << module.output();
  for (const char* task : {"ps-0", "worker-0"}) EXPECT_TRUE(hasLibTorch(module, task)) << task;
}

// At once, not after twenty starts that come to the same.
TEST_F(TorchProgramTest, AGpuThatIsNotThereEndsTheJobInOneLine) {
  for (const bool ring : {false, true}) {
    std::vector<std::string> flags = {"--set", "training.device=GPU"};
    if (ring) flags.insert(flags.end(), {"--set", "strategy=AllReduce", "--set", "ps="});
    JobRun run(folder(ring ? "ring" : "servers"), smallJob(1, 2, 60), flags);
    const ProgramEnd end = run.launchAndWait();
    EXPECT_EQ(end.code, 1) << end.output;
    EXPECT_THAT(end.lastLine(),
                AllOf(HasSubstr("result: failed"), HasSubstr("BadInput"), HasSubstr("exit code 3"),
                      HasSubstr("training.device: GPU, but ")));
  }
}

}  // namespace
}  // namespace trainyard
