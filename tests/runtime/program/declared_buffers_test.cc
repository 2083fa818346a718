// Variables that are not trained, as files: of every type, the newest not after a step, and refused
// where they are another model's.
#include "runtime/program/declared_buffers.h"

#include <algorithm>
#include <filesystem>

#include "base/process/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/process/temp_dir.h"

namespace trainyard::runtime {
namespace {

using session::Declaration;
using session::SessionMemory;
using ::testing::HasSubstr;

// A trained variable between others of all types.
Declaration manyTypes() {
  Declaration model{.samples = 1, .variables = {{"w", {4}}}};
  for (int type = 0; type < kElementTypes; ++type) {
    model.variables.push_back(
        {"buffer-" + std::to_string(type), {3, type + 1}, static_cast<ElementType>(type), false});
  }
  model.variables.push_back({"v", {}});
  return model;
}

class DeclaredBuffersTest : public testing::Test {
 protected:
  // All bytes of what is not trained.
  void fill(std::byte value) {
    for (std::size_t v = 0; v < model_.variables.size(); ++v) {
      if (!model_.variables[v].trainable) std::ranges::fill(memory_.value(v), value);
    }
  }
  void expect(std::byte value) {
    for (std::size_t v = 0; v < model_.variables.size(); ++v) {
      const std::byte wanted = model_.variables[v].trainable ? std::byte{0} : value;
      EXPECT_TRUE(std::ranges::all_of(memory_.value(v), [&](std::byte b) { return b == wanted; }))
          << model_.variables[v].name;
    }
  }
  std::string path(std::int64_t step) {
    return (dir_.path() / ("buffers.step-" + std::to_string(step) + ".safetensors")).string();
  }

  TempDir dir_;
  Declaration model_ = manyTypes();
  SessionMemory memory_ = *SessionMemory::create(model_);
  DeclaredBuffers buffers_{model_, memory_, dir_.path().string(), 2};
};

TEST_F(DeclaredBuffersTest, ComeBackAsTheyWereWhenTheyWereCopied) {
  EXPECT_TRUE(buffers_.any());
  for (const int step : {4, 8, 12}) {
    fill(static_cast<std::byte>(step));
    const auto write = buffers_.keep(step);
    fill(std::byte{77});
    ASSERT_TRUE(write().ok());
  }
  EXPECT_FALSE(buffers_.has(4)) << "two are kept";
  EXPECT_TRUE(buffers_.has(8));
  ASSERT_TRUE(buffers_.restore(11).ok());
  expect(std::byte{8});
  ASSERT_TRUE(buffers_.restore(12).ok());
  expect(std::byte{12});
  ASSERT_TRUE(buffers_.restore(7).ok());  // there are none
  expect(std::byte{12});
}

TEST_F(DeclaredBuffersTest, WithoutAnyThereIsNothingToKeep) {
  const Declaration model{.samples = 1, .variables = {{"w", {4}}}};
  EXPECT_FALSE(DeclaredBuffers(model, memory_, dir_.path().string(), 2).any());
}

TEST_F(DeclaredBuffersTest, ThoseOfAnotherModelAreRefusedByName) {
  ASSERT_TRUE(buffers_.keep(4)().ok());
  Declaration other = model_;
  other.variables[3].shape = {5};
  const SessionMemory memory = *SessionMemory::create(other);
  const DeclaredBuffers buffers(other, memory, dir_.path().string(), 2);
  const Status refused = buffers.restore(4);
  EXPECT_TRUE(absl::IsDataLoss(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr(path(4) + ": array buffer-2 is not"));
  ASSERT_TRUE(writeFileAtomically(path(6), "no safetensors").ok());
  EXPECT_THAT(std::string(buffers_.restore(6).message()), HasSubstr(path(6)));
}

}  // namespace
}  // namespace trainyard::runtime
