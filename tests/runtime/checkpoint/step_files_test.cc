#include "runtime/checkpoint/step_files.h"

#include <filesystem>

#include "base/process/files.h"
#include "gtest/gtest.h"
#include "tests/runtime/checkpoint/sample_checkpoint.h"

namespace trainyard::runtime {
namespace {

class StepFilesTest : public testing::Test {
 protected:
  void make(const std::string& name) {
    ASSERT_TRUE(writeFileAtomically(dir_.path() + "/" + name, "x").ok());
  }

  SampleDir dir_;
  const StepFiles files_{dir_.path(), "state.step-", ".bin"};
};

TEST_F(StepFilesTest, TheNewestCountsByItsStep) {
  EXPECT_EQ(files_.newest(), std::nullopt);
  for (const char* name : {"state.step-9.bin", "state.step-10.bin", "state.step-100.bin"})
    make(name);
  EXPECT_EQ(files_.newest(), 100);
  EXPECT_EQ(files_.newest(99), 10);
  EXPECT_EQ(files_.newest(10), 10);
  EXPECT_EQ(files_.newest(8), std::nullopt);
  EXPECT_TRUE(files_.has(9));
  EXPECT_FALSE(files_.has(11));
  EXPECT_EQ(files_.path(9), dir_.path() + "/state.step-9.bin");
}

TEST_F(StepFilesTest, WhatIsCalledOtherwiseIsNone) {
  for (const char* name : {"state.step-.bin", "state.step-1x.bin", "state.step-1.bin.tmp",
                           "other.step-1.bin", "state.step-99999999999999999999.bin", ".bin"}) {
    make(name);
  }
  EXPECT_EQ(files_.newest(), std::nullopt);
  files_.prune(0);
  EXPECT_TRUE(std::filesystem::exists(dir_.path() + "/state.step-1x.bin"));
}

TEST_F(StepFilesTest, OnlyTheNewestAreKept) {
  for (int step = 1; step <= 12; ++step) make("state.step-" + std::to_string(step) + ".bin");
  files_.prune(3);
  for (int step = 1; step <= 12; ++step) EXPECT_EQ(files_.has(step), step > 9) << step;
}

}  // namespace
}  // namespace trainyard::runtime
