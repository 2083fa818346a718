#include "base/programs/runtime_program.h"

#include <filesystem>
#include <string>

#include "base/process/files.h"
#include "base/programs/job_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/process/temp_dir.h"

namespace trainyard {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

v1::Training training(const std::string& model, const std::string& device, double simulated = 0) {
  v1::Training training;
  training.mutable_model()->set_name(model);
  if (simulated > 0) training.mutable_model()->set_simulated_step_seconds(simulated);
  training.set_device(device);
  return training;
}

TEST(RuntimeProgram, ModulesAreReadByEverybodyAndGpusUsedByWorkers) {
  for (const v1::Role role : {v1::ROLE_PS, v1::ROLE_WORKER, v1::ROLE_UNSPECIFIED}) {
    EXPECT_EQ(libTorchNeed(training("torchscript", "CPU"), role), LibTorchNeed::kAlways) << role;
    EXPECT_EQ(libTorchNeed(training("mlp", "CPU"), role), LibTorchNeed::kNone) << role;
    EXPECT_EQ(libTorchNeed(training("mlp", "GPU", 0.1), role), LibTorchNeed::kNone) << role;
    v1::Training with_tables = training("wide_and_deep", "Auto");
    with_tables.add_tables();
    EXPECT_EQ(libTorchNeed(with_tables, role), LibTorchNeed::kNone) << role;
    const bool worker = role == v1::ROLE_WORKER;
    EXPECT_EQ(libTorchNeed(training("vgg19", "GPU"), role),
              worker ? LibTorchNeed::kAlways : LibTorchNeed::kNone);
    EXPECT_EQ(libTorchNeed(training("vgg19", "Auto"), role),
              worker ? LibTorchNeed::kWhereGpu : LibTorchNeed::kNone);
  }
}

TEST(RuntimeProgram, AutoTakesLibTorchWhereThereIsAGpuAndTheProgram) {
  for (const bool program : {false, true}) {
    for (const bool gpu : {false, true}) {
      const TorchPlace place{.has_program = program, .has_gpu = gpu};
      EXPECT_EQ(takesLibTorch(LibTorchNeed::kWhereGpu, place), program && gpu);
      EXPECT_TRUE(takesLibTorch(LibTorchNeed::kAlways, place));
      EXPECT_FALSE(takesLibTorch(LibTorchNeed::kNone, place));
    }
  }
}

TEST(RuntimeProgram, AGpuIsWhatTheDriverShowsAndNobodyHides) {
  EXPECT_TRUE(showsGpu({"null", "nvidiactl", "nvidia0"}, nullptr));
  EXPECT_TRUE(showsGpu({"dxg"}, nullptr));
  EXPECT_TRUE(showsGpu({"nvidia12"}, "12"));
  EXPECT_TRUE(showsGpu({"nvidia0"}, "GPU-8932f937"));
  EXPECT_FALSE(showsGpu({"null", "nvidiactl", "nvidia-uvm", "nvidia"}, nullptr));
  for (const char* hidden : {"", " ", "-1", "void", "NoDevFiles"})
    EXPECT_FALSE(showsGpu({"nvidia0"}, hidden)) << hidden;
}

class ProgramFolder : public testing::Test {
 protected:
  void put(const std::string& path) {
    ASSERT_TRUE(writeFileAtomically(path, "").ok());
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }

  const TempDir dir_;
  const std::string plain_ = (dir_.path() / "trainyard-runtime").string();
  const std::string torch_ = plain_ + "-torch";
};

TEST_F(ProgramFolder, TheOneWithLibTorchStandsBeside) {
  put(torch_);
  EXPECT_EQ(*runtimeProgram(plain_, training("torchscript", "Auto"), v1::ROLE_PS, "-1"), torch_);
  EXPECT_EQ(*runtimeProgram(plain_, training("mlp", "GPU"), v1::ROLE_WORKER, "-1"), torch_);
  EXPECT_EQ(*runtimeProgram(plain_, training("mlp", "Auto"), v1::ROLE_WORKER, "-1"), plain_);
  EXPECT_EQ(*runtimeProgram(plain_, training("mlp", "GPU"), v1::ROLE_PS, nullptr), plain_);
}

TEST_F(ProgramFolder, WhatIsMissingIsNamedWithWhoHasIt) {
  const auto answer = [&](const v1::Training& training) {
    const auto program = runtimeProgram(plain_, training, v1::ROLE_WORKER, nullptr);
    EXPECT_EQ(program.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(failureClass(program.status()), FailureClass::kPermanent);
    return std::string(program.status().message());
  };
  EXPECT_THAT(
      answer(training("torchscript", "Auto")),
      AllOf(StartsWith("spec.training.model: torchscript needs trainyard-runtime-torch"),
            HasSubstr("there is no " + torch_), HasSubstr("`make torch`"),
            HasSubstr("libtorch-dev"), HasSubstr("runtimeTorch.image"), Not(HasSubstr("\n"))));
  EXPECT_THAT(answer(training("mlp", "GPU")),
              StartsWith("spec.training.device: GPU needs trainyard-runtime-torch"));
  EXPECT_EQ(*runtimeProgram(plain_, training("mlp", "Auto"), v1::ROLE_WORKER, nullptr), plain_);
}

TEST_F(ProgramFolder, AJobFileIsReadOrNamed) {
  const std::string path = (dir_.path() / "job.json").string();
  EXPECT_THAT(std::string(readJobFile(path).status().message()), HasSubstr(path));
  for (const char* text : {"{", R"({"spec": {"sead": 1}})"}) {
    ASSERT_TRUE(writeFileAtomically(path, text).ok());
    EXPECT_THAT(std::string(readJobFile(path).status().message()), StartsWith(path)) << text;
  }
  ASSERT_TRUE(writeFileAtomically(path, R"({"spec": {"training": {"device": "GPU"}}})").ok());
  EXPECT_EQ(readJobFile(path)->spec().training().device(), "GPU");
}

}  // namespace
}  // namespace trainyard
