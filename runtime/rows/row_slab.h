// The rows of one partition, by number, in blocks that never move: of 2, 2, 4, 8 rows and then of
// 16, so that a table of few rows costs little and a large one has next to nothing in reserve.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "base/core/free_with.h"

namespace trainyard::runtime::rows {

// What stands before a row's floats.
struct RowHeader {
  std::uint64_t id = 0;
  std::uint32_t step = 0;   // of the last update, cut to 32 bits; asynchronously its ticket
  std::uint32_t count = 0;  // how often the id has occurred, at most 2^32 - 1
};

constexpr std::uint32_t addCounts(std::uint32_t a, std::uint32_t b) {
  return a > UINT32_MAX - b ? UINT32_MAX : a + b;
}

// Rows of `floats` floats. Not thread-safe.
class RowSlab {
 public:
  explicit RowSlab(std::size_t floats)
      : stride_((sizeof(RowHeader) + floats * sizeof(float) + 15) / 16 * 16), floats_(floats) {}

  std::uint32_t size() const { return size_; }
  // A further row, number size() - 1; its floats are anything.
  std::uint32_t add();
  // Precondition: there is one.
  void removeLast();
  // Row `to` becomes what `from` is.
  void copy(std::uint32_t from, std::uint32_t to);
  RowHeader& header(std::uint32_t row) const { return *reinterpret_cast<RowHeader*>(at(row)); }
  std::span<float> floats(std::uint32_t row) const {
    return {reinterpret_cast<float*>(at(row) + sizeof(RowHeader)), floats_};
  }
  void prefetch(std::uint32_t row) const {
    const std::byte* const begin = at(row);
    for (std::size_t offset = 0; offset < stride_; offset += 64)
      __builtin_prefetch(begin + offset, 1);
  }
  // Of the blocks and of where they are.
  std::size_t bytes() const { return bytes_ + blocks_.capacity() * sizeof(blocks_[0]); }

 private:
  static constexpr std::uint32_t kBlock = 16;
  static constexpr std::uint32_t kSmall = 4;  // blocks before those of kBlock rows

  // 0, 1 | 2, 3 | 4 .. 7 | 8 .. 15 | 16 .. 31 | 32 .. 47 | ...
  static std::uint32_t blockOf(std::uint32_t row) {
    if (row >= kBlock) return kSmall - 1 + row / kBlock;
    return row < 2 ? 0 : static_cast<std::uint32_t>(std::bit_width(row)) - 1;
  }
  std::size_t bytesOf(std::uint32_t block) const {
    return ((firstOf(block + 1) - firstOf(block)) * stride_ + 63) / 64 * 64;
  }
  static std::uint32_t firstOf(std::uint32_t block) {
    if (block >= kSmall) return (block - (kSmall - 1)) * kBlock;
    return block == 0 ? 0 : 1U << block;
  }
  std::byte* at(std::uint32_t row) const {
    const std::uint32_t block = blockOf(row);
    return blocks_[block].get() + (row - firstOf(block)) * stride_;
  }

  std::size_t stride_;
  std::size_t floats_;
  std::uint32_t size_ = 0;
  std::size_t bytes_ = 0;
  std::vector<std::unique_ptr<std::byte, FreeWith<std::free>>> blocks_;
};

}  // namespace trainyard::runtime::rows
