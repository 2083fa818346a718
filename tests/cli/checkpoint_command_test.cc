// `trainyard checkpoint` as the program runs it, with a stand-in for trainyard-runtime.
#include <unistd.h>

#include <filesystem>
#include <sstream>

#include "CLI/CLI.hpp"
#include "base/core/exit_code.h"
#include "cli/checkpoint_inspect.h"
#include "cli/command.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/checkpoint/checkpoint.h"
#include "tests/runtime/checkpoint/sample_checkpoint.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;
using runtime::SampleDir;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class CheckpointCommand : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(manifests_);
    for (const int step : {10, 20}) ASSERT_TRUE(runtime::writeSample(manifests_, 2, step, 1).ok());
  }

  // Exit code of `trainyard checkpoint ARGUMENTS`; output in out_ and err_.
  int run(const std::vector<std::string>& arguments) {
    CLI::App app;
    ChosenCommand chosen;
    registerCheckpoint(app, chosen);
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    reversed.push_back("checkpoint");
    try {
      app.parse(reversed);
    } catch (const CLI::ParseError& error) {
      err_ = error.what();
      return kExitUsage;
    }
    std::ostringstream out, err;
    const int code = chosen({.out = out, .err = err, .program_dir = dir_.path()});
    out_ = out.str();
    err_ = err.str();
    return code;
  }

  void damage(int step) {
    const std::string path =
        manifests_ + "/ps-1.step-" + std::to_string(step) + ".e1.i1.safetensors";
    fs::resize_file(path, fs::file_size(path) - 4);
  }

  SampleDir dir_;
  std::string run_dir_ = dir_ / "run";
  std::string manifests_ = run_dir_ + "/checkpoints";
  std::string out_, err_;
};

TEST_F(CheckpointCommand, InspectListsNewestFirstWithVariables) {
  EXPECT_EQ(run({"inspect", run_dir_}), kExitOk);
  EXPECT_LT(out_.find("        20  "), out_.find("        10  "));
  EXPECT_THAT(out_, HasSubstr("  ok\n"));
  EXPECT_THAT(out_, HasSubstr("step 20 of job 6f1e"));
  EXPECT_THAT(out_, HasSubstr("optimizer RMSProp (slots rms, momentum)"));
  EXPECT_THAT(out_, HasSubstr("1,200  [100, 3]"));
  EXPECT_EQ(err_, "");
}

TEST_F(CheckpointCommand, InspectNamesTables) {
  runtime::Manifest manifest;
  manifest.tables = {{.name = "words", .dim = 16, .slots = {"accumulator"}},
                     {.name = "wide", .dim = 1, .slots = {}}};
  std::ostringstream out, err;
  EXPECT_EQ(inspectCheckpoints({.out = out, .err = err}, manifests_, {manifest}, {}, 0), kExitOk);
  EXPECT_THAT(out.str(), HasSubstr("TABLE       DIM  SLOTS\n"));
  EXPECT_THAT(out.str(), HasSubstr("words        16  accumulator\n"));
  EXPECT_THAT(out.str(), HasSubstr("wide          1  -\n"));
}

TEST_F(CheckpointCommand, InspectNamesWhatIsDamaged) {
  damage(20);
  runtime::writeText(manifests_ + "/step-30.e1.json", "{}");
  EXPECT_EQ(run({"inspect", run_dir_}), kExitUsage);
  EXPECT_THAT(out_, HasSubstr("damaged: " + manifests_ + "/ps-1.step-20.e1.i1.safetensors: "));
  EXPECT_THAT(out_,
              HasSubstr("unreadable: " + manifests_ + "/step-30.e1.json: format: is missing"));
}

TEST_F(CheckpointCommand, DigestOfEitherDirectoryAndOfAStep) {
  ASSERT_EQ(run({"digest", run_dir_}), kExitOk);
  const std::string newest = out_;
  EXPECT_EQ(newest.size(), 65u);
  ASSERT_EQ(run({"digest", manifests_}), kExitOk);
  EXPECT_EQ(out_, newest);
  ASSERT_EQ(run({"digest", run_dir_, "--step", "20"}), kExitOk);
  EXPECT_EQ(out_, newest);
  ASSERT_EQ(run({"digest", run_dir_, "--step", "10"}), kExitOk);
  EXPECT_NE(out_, newest);
}

TEST_F(CheckpointCommand, ADamagedCheckpointIsNamedNotLoaded) {
  damage(20);
  EXPECT_EQ(run({"digest", run_dir_}), kExitUsage);
  EXPECT_THAT(err_, HasSubstr("trainyard: " + manifests_ + "/ps-1.step-20.e1.i1.safetensors: "));
  EXPECT_EQ(out_, "");
  EXPECT_EQ(run({"export", run_dir_, "--output", dir_ / "x"}), kExitUsage);
  EXPECT_FALSE(fs::exists(dir_ / "x"));
  EXPECT_EQ(run({"digest", run_dir_, "--step", "10"}), kExitOk);
}

TEST_F(CheckpointCommand, NoOtherIsTakenForOneThatCannotBeRead) {
  runtime::writeText(manifests_ + "/step-30.e1.json", "{}");
  for (const char* verb : {"digest", "export", "evaluate"}) {
    EXPECT_EQ(run({verb, run_dir_}), kExitUsage) << verb;
    EXPECT_THAT(err_, HasSubstr("/step-30.e1.json: format: is missing; give another checkpoint "
                                "with --step"));
    EXPECT_EQ(out_, "");
  }
  EXPECT_EQ(run({"digest", run_dir_, "--step", "20"}), kExitOk);
}

TEST_F(CheckpointCommand, ExportWritesOneFile) {
  ASSERT_EQ(run({"export", run_dir_, "--output", dir_ / "x.safetensors"}), kExitOk);
  EXPECT_EQ(out_, (dir_ / "x.safetensors") + "\n");
  const std::string plain = runtime::readText(dir_ / "x.safetensors");
  EXPECT_THAT(plain, HasSubstr("\"fc\""));
  EXPECT_THAT(plain, Not(HasSubstr("\"fc/rms\"")));
  ASSERT_EQ(run({"export", run_dir_, "-o", dir_ / "x.safetensors", "--slots"}), kExitOk);
  EXPECT_THAT(runtime::readText(dir_ / "x.safetensors"), HasSubstr("\"fc/rms\""));
}

TEST_F(CheckpointCommand, EvaluateRunsTheRuntimeAndPassesItsExitCode) {
  const std::string program = dir_ / "trainyard-runtime";
  runtime::writeText(program, "#!/bin/sh\necho \"$@\" >" + (dir_ / "arguments") + "\nexit 7\n");
  fs::permissions(program, fs::perms::owner_all);
  EXPECT_EQ(run({"evaluate", manifests_, "--step", "10"}), 7);
  EXPECT_EQ(
      runtime::readText(dir_ / "arguments"),
      "evaluate --job-dir " + fs::canonical(run_dir_).string() + " --manifest step-10.e1.json\n");
  EXPECT_EQ(err_, "");
  runtime::writeText(program, "#!/bin/sh\nexit 3\n");
  EXPECT_EQ(run({"evaluate", manifests_}), kExitUsage) << "bad input is a wrong file here";
}

TEST_F(CheckpointCommand, EvaluateSaysWhenTheRuntimeDiesOrIsMissing) {
  EXPECT_EQ(run({"evaluate", run_dir_}), kExitFailure);
  EXPECT_THAT(err_, HasSubstr("trainyard-runtime"));
  const std::string program = dir_ / "trainyard-runtime";
  runtime::writeText(program, "#!/bin/sh\nkill -9 $$\n");
  fs::permissions(program, fs::perms::owner_all);
  EXPECT_EQ(run({"evaluate", run_dir_}), kExitFailure);
  EXPECT_THAT(err_, HasSubstr("killed by signal 9"));
}

// The model of the run's job decides who evaluates.
TEST_F(CheckpointCommand, AModuleIsEvaluatedByTheRuntimeWithLibTorch) {
  runtime::writeText(run_dir_ + "/job.json",
                     R"({"spec": {"training": {"model": {"name": "torchscript"}}}})");
  EXPECT_EQ(run({"evaluate", run_dir_}), kExitUsage);
  EXPECT_THAT(err_, HasSubstr("spec.training.model: torchscript needs trainyard-runtime-torch"));
  const std::string program = dir_ / "trainyard-runtime-torch";
  runtime::writeText(program, "#!/bin/sh\nexit 7\n");
  fs::permissions(program, fs::perms::owner_all);
  EXPECT_EQ(run({"evaluate", run_dir_}), 7);
}

TEST_F(CheckpointCommand, WrongUse) {
  EXPECT_EQ(run({"digest", dir_ / "absent"}), kExitUsage);
  EXPECT_EQ(err_, "trainyard: " + (dir_ / "absent") + ": no such directory\n");
  EXPECT_EQ(run({"digest", dir_.path()}), kExitUsage);
  EXPECT_THAT(err_, HasSubstr("holds no checkpoint: expected a run directory"));
  EXPECT_EQ(run({"digest", run_dir_, "--step", "11"}), kExitUsage);
  EXPECT_THAT(err_, HasSubstr("no checkpoint of step 11; there are 20, 10"));
  EXPECT_EQ(run({"digest", run_dir_, "--step", "-1"}), kExitUsage);
  EXPECT_EQ(run({"digest"}), kExitUsage);
  EXPECT_EQ(run({}), kExitUsage);
  fs::remove_all(manifests_);
  fs::create_directory(manifests_);
  EXPECT_EQ(run({"inspect", run_dir_}), kExitUsage);
  EXPECT_THAT(err_, HasSubstr("holds no checkpoint"));
}

}  // namespace
}  // namespace trainyard::cli
