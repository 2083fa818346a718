#include "base/process/growing_memory.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "gtest/gtest.h"
#include "tests/base/process/file_size_limit.h"
#include "tests/base/process/temp_dir.h"

namespace trainyard {
namespace {

constexpr std::size_t kPage = 4096;

void expectGrows(GrowingMemory& memory) {
  ASSERT_TRUE(memory.resize(kPage).ok());
  EXPECT_EQ(memory.bytes(), kPage);
  std::memcpy(memory.data(), "begin", 5);
  for (std::size_t pages = 2; pages < 2000; pages = pages * 3 / 2) {
    const std::size_t before = memory.bytes();
    ASSERT_TRUE(memory.resize(pages * kPage).ok());
    EXPECT_EQ(std::memcmp(memory.data(), "begin", 5), 0);
    for (std::size_t at = before; at < memory.bytes(); at += kPage) {
      ASSERT_EQ(memory.data()[at], std::byte{0});
      memory.data()[at] = std::byte{1};
    }
  }
  ASSERT_TRUE(memory.resize(kPage + 1).ok());
  EXPECT_EQ(memory.bytes(), kPage + 1);
  EXPECT_EQ(memory.data()[kPage], std::byte{1});
  EXPECT_EQ(std::memcmp(memory.data(), "begin", 5), 0);
}

TEST(GrowingMemory, OfTheProcess) {
  GrowingMemory memory;
  EXPECT_EQ(memory.data(), nullptr);
  expectGrows(memory);
}

TEST(GrowingMemory, OfAFileWithoutAName) {
  const TempDir dir;
  auto memory = GrowingMemory::inFolder(dir.path());
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  expectGrows(*memory);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  // Its pages are the file's.
  std::ifstream maps("/proc/self/maps");
  const std::string text{std::istreambuf_iterator<char>(maps), {}};
  EXPECT_NE(text.find(dir.path().native()), std::string::npos);
}

TEST(GrowingMemory, MovesAndIsGivenBack) {
  const TempDir dir;
  const auto mapped = [&] {
    std::ifstream maps("/proc/self/maps");
    const std::string text{std::istreambuf_iterator<char>(maps), {}};
    return text.find(dir.path().native()) != std::string::npos;
  };
  {
    GrowingMemory first = *GrowingMemory::inFolder(dir.path());
    ASSERT_TRUE(first.resize(kPage).ok());
    first.data()[0] = std::byte{7};
    const GrowingMemory second = std::move(first);
    EXPECT_EQ(second.data()[0], std::byte{7});
    EXPECT_TRUE(mapped());
  }
  EXPECT_FALSE(mapped());
}

TEST(GrowingMemory, WhereThereIsNoRoomNothingChanges) {
  const TempDir dir;
  GrowingMemory memory = *GrowingMemory::inFolder(dir.path());
  ASSERT_TRUE(memory.resize(kPage).ok());
  memory.data()[kPage - 1] = std::byte{9};
  {
    const FileSizeLimit limit(2 * kPage);
    EXPECT_FALSE(memory.resize(3 * kPage).ok());
  }
  EXPECT_EQ(memory.bytes(), kPage);
  EXPECT_EQ(memory.data()[kPage - 1], std::byte{9});
  EXPECT_TRUE(memory.resize(3 * kPage).ok());
}

TEST(GrowingMemory, NeedsAFolder) {
  const auto memory = GrowingMemory::inFolder("/nowhere/at/all");
  EXPECT_EQ(memory.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(std::string(memory.status().message()).find("/nowhere/at/all"), std::string::npos);
}

}  // namespace
}  // namespace trainyard
