#include "base/core/recycled_memory.h"

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace trainyard {
namespace {

TEST(RecycledMemory, WhatComesBackIsGivenOutForTheSameSize) {
  RecycledMemory memory;
  void* const large = memory.allocate(1 << 20, alignof(float));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(large) % 64, 0U);
  memory.deallocate(large, 1 << 20, alignof(float));
  void* const small = memory.allocate(1 << 19, alignof(float));
  EXPECT_NE(small, large);
  EXPECT_EQ(memory.allocate(1 << 20, alignof(float)), large);
  EXPECT_EQ(memory.bytes(), 3U << 19);
  memory.deallocate(small, 1 << 19, alignof(float));
  memory.deallocate(large, 1 << 20, alignof(float));
}

// A model's gradients, step after step, the last of one step gone after the next one began.
TEST(RecycledMemory, GrowsNoMoreOnceAllWereThereTogether) {
  RecycledMemory memory;
  const std::vector<std::size_t> sizes = {12'800'000, 67'000'000, 160'000, 640};
  std::vector<void*> before;
  std::size_t after_two = 0;
  for (int step = 0; step < 50; ++step) {
    std::vector<void*> now;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      now.push_back(memory.allocate(sizes[i]));
      if (step > 0) memory.deallocate(before[i], sizes[i]);
    }
    before = now;
    if (step == 1) after_two = memory.bytes();
  }
  EXPECT_EQ(memory.bytes(), after_two);
  for (std::size_t i = 0; i < sizes.size(); ++i) memory.deallocate(before[i], sizes[i]);
}

TEST(RecycledMemory, ThreadsNeverHaveTheSameBlock) {
  RecycledMemory memory;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&memory, t] {
      for (int i = 0; i < 2'000; ++i) {
        auto* const block = static_cast<char*>(memory.allocate(256));
        std::memset(block, t, 256);
        for (int at = 0; at < 256; ++at) ASSERT_EQ(block[at], t);
        memory.deallocate(block, 256);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(memory.bytes(), 4U * 256);
}

}  // namespace
}  // namespace trainyard
