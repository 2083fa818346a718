// A program of its own: how a heap treats what is freed is settled before its first thread.
#include "base/process/freed_memory.h"

#include <cstring>
#include <fstream>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace trainyard {
namespace {

constexpr std::size_t kBlocks = 100;
constexpr std::size_t kBytes = 1 << 20;

std::int64_t residentBytes() {
  std::int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * 4096;
}

std::vector<std::vector<char>> take() {
  return std::vector<std::vector<char>>(kBlocks, std::vector<char>(kBytes, 1));
}

// As a server's: one thread copies what a checkpoint reads, another ends the copies, a third needs
// memory next.
TEST(FreedMemory, WhatOneThreadFreesIsAnothersToTake) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer has a heap of its own";
#endif
  keepFreedMemory();
  std::vector<std::vector<char>> blocks;
  std::thread([&] { blocks = take(); }).join();
  blocks.clear();
  const std::int64_t before = residentBytes();
  EXPECT_GE(before, static_cast<std::int64_t>(kBlocks * kBytes)) << "what is freed stays";
  for (int i = 0; i < 3; ++i) {
    std::thread([&] { blocks = take(); }).join();
    EXPECT_LE(residentBytes() - before, static_cast<std::int64_t>(kBlocks * kBytes / 2));
    blocks.clear();
  }
  blocks = take();
  EXPECT_LE(residentBytes() - before, static_cast<std::int64_t>(kBlocks * kBytes / 2));
}

}  // namespace
}  // namespace trainyard
