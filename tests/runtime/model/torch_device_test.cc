// What a program that is linked with LibTorch says of devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "runtime/model/device.h"
#include "runtime/model/model.h"

namespace trainyard::runtime {
namespace {

using testing::HasSubstr;

TEST(TorchDevice, AutoIsTheProcessorWhereThereIsNoGpuAndSaysWhy) {
  const auto other = chooseDevice("Auto", GpuSupport{false, 0}, 0);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->name, "");
  EXPECT_THAT(other->reason, HasSubstr("computing on the processor: LibTorch "));
  EXPECT_THAT(other->reason, HasSubstr("is built for processors only"));
  const auto hidden = chooseDevice("Auto", GpuSupport{true, 0}, 0);
  ASSERT_TRUE(hidden.ok()) << hidden.status();
  EXPECT_EQ(hidden->name, "");
  EXPECT_THAT(hidden->reason, HasSubstr("no GPU is visible to this process"));
}

TEST(TorchDevice, WhatThisLibTorchSeesIsConsistent) {
  const GpuSupport here = gpuSupport();
  EXPECT_GE(here.visible, 0);
  EXPECT_TRUE(here.built || here.visible == 0);
}

TEST(TorchDevice, LibTorchIsNamedAmongWhatComputes) {
  setComputeThreads(1);
  EXPECT_TRUE(hasLibTorch());
  EXPECT_THAT(mathLibraries(), testing::MatchesRegex(
                                   "oneDNN [0-9.]+, OpenBLAS [0-9.]+, LibTorch [0-9.]+, 1 thread"));
}

}  // namespace
}  // namespace trainyard::runtime
