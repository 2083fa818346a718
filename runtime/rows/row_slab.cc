#include "runtime/rows/row_slab.h"

#include <cstring>
#include <new>

namespace trainyard::runtime::rows {

std::uint32_t RowSlab::add() {
  const std::uint32_t row = size_;
  const std::uint32_t block = blockOf(row);
  if (block == blocks_.size()) {
    const std::size_t bytes = bytesOf(block);
    void* const memory = std::aligned_alloc(64, bytes);
    if (memory == nullptr) throw std::bad_alloc();
    blocks_.emplace_back(static_cast<std::byte*>(memory));
    bytes_ += bytes;
  }
  ++size_;
  header(row) = {};
  return row;
}

// A block that has become empty goes, but for the first of several that may come and go.
void RowSlab::removeLast() {
  --size_;
  const std::uint32_t needed = size_ == 0 ? 0 : blockOf(size_ - 1) + 1;
  while (blocks_.size() > needed + 1) {
    bytes_ -= bytesOf(static_cast<std::uint32_t>(blocks_.size() - 1));
    blocks_.pop_back();
  }
}

void RowSlab::copy(std::uint32_t from, std::uint32_t to) {
  if (from != to) std::memcpy(at(to), at(from), stride_);
}

}  // namespace trainyard::runtime::rows
