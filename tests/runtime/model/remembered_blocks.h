// Memory for gradients that remembers what it has given away.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <memory_resource>
#include <span>

namespace trainyard::runtime {

class RememberedBlocks final : public std::pmr::memory_resource {
 public:
  bool contains(std::span<const float> values) const {
    const auto found = blocks.find(values.data());
    return found != blocks.end() && found->second == values.size_bytes();
  }
  std::map<const void*, std::size_t> blocks;

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    void* const block = std::pmr::new_delete_resource()->allocate(bytes, alignment);
    blocks[block] = bytes;
    return block;
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t alignment) override {
    EXPECT_EQ(blocks[block], bytes);
    blocks.erase(block);
    std::pmr::new_delete_resource()->deallocate(block, bytes, alignment);
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }
};

}  // namespace trainyard::runtime
