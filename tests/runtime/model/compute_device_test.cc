#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/core/status.h"
#include "runtime/model/device.h"
#include "runtime/model/model.h"

namespace trainyard::runtime {
namespace {

using testing::HasSubstr;

constexpr GpuSupport kProcessorsOnly{false, 0};
constexpr GpuSupport kNoneVisible{true, 0};
constexpr GpuSupport kFour{true, 4};

TEST(Device, AutoTakesAGpuWhereThereIsOne) {
  const auto gpu = chooseDevice("Auto", kFour, 0);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  EXPECT_EQ(gpu->name, "cuda:0");
  EXPECT_EQ(gpu->reason, "computing on cuda:0 of 4 visible GPUs");
  EXPECT_EQ(chooseDevice("Auto", {true, 1}, 0)->reason, "computing on cuda:0 of 1 visible GPU");
}

TEST(Device, AutoIsTheProcessorElseAndSaysWhy) {
  const auto other = chooseDevice("Auto", kProcessorsOnly, 0);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->name, "");
  EXPECT_EQ(other->reason, "computing on the processor: this program is linked without LibTorch");
}

TEST(Device, CpuNeverTakesAGpu) {
  for (const GpuSupport& gpus : {kProcessorsOnly, kNoneVisible, kFour})
    EXPECT_EQ(chooseDevice("CPU", gpus, 1)->name, "");
}

// The same would be so at every further start.
TEST(Device, AGpuThatIsNotThereIsAPermanentFailure) {
  for (const GpuSupport& gpus : {kProcessorsOnly, kNoneVisible}) {
    const Status status = chooseDevice("GPU", gpus, 0).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(failureClass(status), FailureClass::kPermanent);
    EXPECT_THAT(std::string(status.message()), HasSubstr("training.device: GPU, but "));
    EXPECT_EQ(std::string(status.message()).find('\n'), std::string::npos);
  }
}

TEST(Device, ProcessesOfAMachineTakeItsGpusInTurns) {
  EXPECT_EQ(chooseDevice("GPU", kFour, 3)->name, "cuda:3");
  EXPECT_EQ(chooseDevice("GPU", kFour, 4)->name, "cuda:0");
  EXPECT_EQ(chooseDevice("Auto", kFour, 6)->name, "cuda:2");
  EXPECT_EQ(chooseDevice("Auto", kFour, 6)->number, 2);
}

TEST(Device, WithoutLibTorchThereIsNone) {
  EXPECT_FALSE(hasLibTorch());
  EXPECT_FALSE(gpuSupport().built);
  EXPECT_EQ(gpuSupport().visible, 0);
}

TEST(Device, WhatNeedsLibTorchSaysThatItIsMissing) {
  v1::ModelSpec spec;
  spec.set_name("mlp");
  const Status gpu = makeModel(spec, {2, 2, 1}, 3, 1, "cuda:0").status();
  EXPECT_THAT(std::string(gpu.message()), HasSubstr("linked without LibTorch"));
  spec.set_name("torchscript");
  spec.set_path("/proc/self/exe");
  const Status script = makeModel(spec, {2, 2, 1}, 3, 1).status();
  EXPECT_THAT(std::string(script.message()), HasSubstr("linked without LibTorch"));
}

}  // namespace
}  // namespace trainyard::runtime
