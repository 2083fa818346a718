#include "runtime/rows/row_slab.h"

#include <new>

namespace trainyard::runtime::rows {

std::uint32_t RowSlab::add() {
  const std::uint32_t row = size_;
  const std::uint32_t block = blockOf(row);
  if (block == blocks_.size()) {
    const std::uint32_t rows = firstOf(block + 1) - firstOf(block);
    const std::size_t bytes = (rows * stride_ + 63) / 64 * 64;
    void* const memory = std::aligned_alloc(64, bytes);
    if (memory == nullptr) throw std::bad_alloc();
    blocks_.emplace_back(static_cast<std::byte*>(memory));
    bytes_ += bytes;
  }
  ++size_;
  header(row) = {};
  return row;
}

}  // namespace trainyard::runtime::rows
