// What training.device makes of a job where no GPU is visible, whatever the machine and the build
// have.
#include <cstdlib>

#include "tests/multiproc/run_fixture.h"

namespace trainyard {
namespace {

using testing::HasSubstr;

class DeviceTest : public RunTest {
 protected:
  void SetUp() override { ::setenv("CUDA_VISIBLE_DEVICES", "-1", /*overwrite=*/1); }

  static std::vector<std::string> on(const std::string& device) {
    return {"--set", "training.device=" + device};
  }
};

TEST_F(DeviceTest, AutoIsTheProcessorAndEveryWorkerSaysSo) {
  JobRun run(folder("auto"), smallJob(1, 2, 60), on("Auto"));
  const ProgramEnd end = run.launchAndWait();
  ASSERT_EQ(end.code, 0) << end.output;
  for (const char* worker : {"worker-0", "worker-1"})
    EXPECT_THAT(run.taskLog(worker), HasSubstr("computing on the processor: ")) << worker;
  EXPECT_EQ(run.taskLog("ps-0").find("computing on"), std::string::npos);
  JobRun other(folder("cpu"), smallJob(1, 2, 60), on("CPU"));
  ASSERT_EQ(other.launchAndWait().code, 0) << other.output();
  EXPECT_THAT(other.taskLog("worker-0"), HasSubstr("computing on the processor (training.device)"));
  EXPECT_EQ(other.digest(), run.digest());
}

}  // namespace
}  // namespace trainyard
