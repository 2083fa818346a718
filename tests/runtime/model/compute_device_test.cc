#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/core/status.h"
#include "runtime/model/device.h"

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
  EXPECT_THAT(other->reason, HasSubstr("computing on the processor: LibTorch "));
  EXPECT_THAT(other->reason, HasSubstr("is built for processors only"));
  const auto hidden = chooseDevice("Auto", kNoneVisible, 0);
  ASSERT_TRUE(hidden.ok()) << hidden.status();
  EXPECT_EQ(hidden->name, "");
  EXPECT_THAT(hidden->reason, HasSubstr("no GPU is visible to this process"));
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

TEST(Device, WhatThisLibTorchSeesIsConsistent) {
  const GpuSupport here = gpuSupport();
  EXPECT_GE(here.visible, 0);
  EXPECT_TRUE(here.built || here.visible == 0);
}

}  // namespace
}  // namespace trainyard::runtime
