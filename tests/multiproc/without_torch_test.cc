// The ordinary build: no program loads LibTorch, and jobs that need it are refused before anything
// is started.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "tests/multiproc/run_fixture.h"

namespace trainyard {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class WithoutTorch : public RunTest {
 protected:
  void needsOrdinaryBuild() {
    if (::access(programPath("trainyard-runtime-torch").c_str(), X_OK) == 0)
      GTEST_SKIP() << "trainyard-runtime-torch is built here";
  }
  std::string jobFile(const std::string& model) {
    std::string yaml = smallJob(1, 1, 10);
    const std::size_t at = yaml.find("model:");
    yaml.replace(at, yaml.find('\n', at) - at, "model: " + model);
    return writeText("job.yaml", yaml).string();
  }

  const std::string module_ = "{name: torchscript, path: /nowhere/model.pt}";
};

// By the loader, which follows what libraries need themselves. Few: each costs time at every start
// of every task.
TEST_F(WithoutTorch, TheRuntimeLoadsFewLibrariesAndNoneOfLibTorchs) {
  const ProgramEnd end = runProgram({"/usr/bin/ldd", programPath("trainyard-runtime")});
  ASSERT_EQ(end.code, 0) << end.output;
  EXPECT_THAT(end.output, HasSubstr("libprotobuf"));
  for (const char* library : {"libtorch", "libc10", "libQt", "libopencv", "libmpi"})
    EXPECT_THAT(end.output, Not(HasSubstr(library)));
  EXPECT_LT(std::count(end.output.begin(), end.output.end(), '\n'), 80) << end.output;
}

TEST_F(WithoutTorch, RunRefusesAtOnceWhatNeedsIt) {
  needsOrdinaryBuild();
  if (IsSkipped()) return;
  struct Case {
    std::string model, device, message;
  };
  for (const Case& c : {Case{"{name: mlp, hidden: [8]}", "GPU", "device: GPU needs "},
                        Case{module_, "Auto", "model: torchscript needs "}}) {
    const std::string dir = (root() / "run").string();
    const ProgramEnd end = program({"trainyard", "run", "-f", jobFile(c.model), "--dir", dir,
                                    "--set", "training.device=" + c.device});
    EXPECT_EQ(end.code, 2) << end.output;
    EXPECT_THAT(end.output, AllOf(StartsWith("trainyard run: spec.training." + c.message +
                                             "trainyard-runtime-torch (there is no /"),
                                  HasSubstr("`make torch`"), HasSubstr("libtorch-dev"),
                                  EndsWith("(chart value runtimeTorch.image)\n")));
    EXPECT_EQ(std::count(end.output.begin(), end.output.end(), '\n'), 1) << end.output;
    EXPECT_FALSE(std::filesystem::exists(dir));
  }
}

TEST_F(WithoutTorch, PlanCannotReadAModule) {
  needsOrdinaryBuild();
  if (IsSkipped()) return;
  const ProgramEnd end = program({"trainyard", "plan", "-f", jobFile(module_)});
  EXPECT_EQ(end.code, 2) << end.output;
  EXPECT_THAT(end.output, HasSubstr("spec.training.model: torchscript needs "));
}

}  // namespace
}  // namespace trainyard
