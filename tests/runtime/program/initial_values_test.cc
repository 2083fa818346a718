// What a program's model begins with: arrays of a file by their names, widened where they are
// narrow, refused by name where they do not fit; the buffers of another run.
#include "runtime/program/initial_values.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/storage/durable_file.h"
#include "tests/base/process/temp_dir.h"

namespace trainyard::runtime {
namespace {

using session::Declaration;
using session::SessionMemory;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Declaration kModel{.samples = 1,
                         .variables = {{"w", {2}}, {"seen", {}, ElementType::kInt64, false}}};

struct Array {
  SafetensorsEntry entry;
  std::string bytes;
};

template <typename T>
Array array(const std::string& name, const std::string& dtype, std::vector<std::int64_t> shape,
            std::vector<T> values) {
  Array made{{.name = name, .dtype = dtype, .shape = std::move(shape)},
             std::string(values.size() * sizeof(T), '\0')};
  std::memcpy(made.bytes.data(), values.data(), made.bytes.size());
  return made;
}

Array weights() {
  return array<float>("w", "F32", {2}, {3, -1});
}
Array seen() {
  return array<std::int64_t>("seen", "I64", {}, {7});
}

class InitialValuesTest : public testing::Test {
 protected:
  std::string write(const std::vector<Array>& arrays) {
    std::vector<SafetensorsEntry> entries;
    for (const Array& array : arrays) entries.push_back(array.entry);
    auto file = DurableFile::create(path_);
    EXPECT_TRUE(file.ok());
    EXPECT_TRUE(file->write(*encodeSafetensorsHeader({}, entries)).ok());
    for (const Array& array : arrays) EXPECT_TRUE(file->write(array.bytes).ok());
    EXPECT_TRUE(file->commit().ok());
    return path_;
  }
  Status read(const std::vector<Array>& arrays) {
    return readInitialArrays(write(arrays), kModel, /*trained=*/true, memory_);
  }
  std::span<float> w() { return {reinterpret_cast<float*>(memory_.value(0).data()), 2}; }
  std::int64_t& seenValue() { return *reinterpret_cast<std::int64_t*>(memory_.value(1).data()); }

  TempDir dir_;
  std::string path_ = (dir_.path() / "net.safetensors").string();
  SessionMemory memory_ = *SessionMemory::create(kModel);
};

TEST_F(InitialValuesTest, AreReadByTheirNames) {
  ASSERT_EQ(read({seen(), weights()}), absl::OkStatus());
  EXPECT_THAT(w(), ElementsAre(3, -1));
  EXPECT_EQ(seenValue(), 7);
}

TEST_F(InitialValuesTest, WhatAnExportHasBesideIsPassedOver) {
  EXPECT_EQ(read({weights(), array<std::int32_t>("global_step", "I32", {}, {5}), seen(),
                  array<float>("w/rms", "F32", {2}, {1, 1})}),
            absl::OkStatus());
}

TEST_F(InitialValuesTest, NarrowWeightsAreWidened) {
  // 1.5 and -2 as IEEE 754 binary16, and as the upper halves of float32.
  ASSERT_EQ(read({array<std::uint16_t>("w", "F16", {2}, {0x3E00, 0xC000}), seen()}),
            absl::OkStatus());
  EXPECT_THAT(w(), ElementsAre(1.5F, -2));
  ASSERT_EQ(read({array<std::uint16_t>("w", "BF16", {2}, {0x3FC0, 0xC000}), seen()}),
            absl::OkStatus());
  EXPECT_THAT(w(), ElementsAre(1.5F, -2));
}

TEST_F(InitialValuesTest, OthersThanTheChiefTakeWhatIsNotTrained) {
  ASSERT_EQ(readInitialBuffers(write({weights(), seen()}), kModel, memory_), absl::OkStatus());
  EXPECT_THAT(w(), ElementsAre(0, 0));
  EXPECT_EQ(seenValue(), 7);
}

TEST_F(InitialValuesTest, WhatDoesNotFitIsRefusedForGoodAndByName) {
  const std::map<std::string, std::vector<Array>> wrong = {
      {"has no array w, the model's is F32 [2]", {seen()}},
      {"array v is none of the model's", {weights(), seen(), array<float>("v", "F32", {1}, {0})}},
      {"has rows of the table deep, which come from a run's directory, not from a file",
       {weights(), seen(), array<std::int64_t>("deep/ids", "I64", {1}, {5}),
        array<float>("deep/rows", "F32", {1, 2}, {1, 1})}},
      {"array w is F32 [1, 2], the model's is F32 [2]",
       {array<float>("w", "F32", {1, 2}, {0, 0}), seen()}},
      {"array w is F64 [2], the model's is F32 [2]",
       {array<double>("w", "F64", {2}, {0, 0}), seen()}},
      {"array seen is F16 [], the model's is I64 []",
       {weights(), array<std::uint16_t>("seen", "F16", {}, {0})}}};
  for (const auto& [reason, arrays] : wrong) {
    const Status refused = read(arrays);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("training.initFrom: " + path_));
    EXPECT_THAT(std::string(refused.message()), HasSubstr(reason));
    EXPECT_EQ(failureClass(refused), FailureClass::kPermanent);
  }
  EXPECT_THAT(std::string(readInitialArrays((dir_.path() / "absent.safetensors").string(), kModel,
                                            true, memory_)
                              .message()),
              HasSubstr("No such file"));
}

TEST_F(InitialValuesTest, AnotherRunThatIsNotThereIsForOthersToTell) {
  EXPECT_FALSE(isArrayFile((dir_.path() / "runs/other").string()));
  EXPECT_EQ(readInitialBuffers((dir_.path() / "runs/other").string(), kModel, memory_),
            absl::OkStatus());
}

}  // namespace
}  // namespace trainyard::runtime
