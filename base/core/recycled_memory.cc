#include "base/core/recycled_memory.h"

#include "base/core/check.h"

namespace trainyard {
namespace {

constexpr std::size_t kAlign = 64;  // a cache line, as vector units and oneDNN like it

std::pmr::memory_resource& heap() {
  return *std::pmr::new_delete_resource();
}

}  // namespace

RecycledMemory::~RecycledMemory() {
  for (const auto& [bytes, blocks] : free_) {
    for (void* const block : blocks) heap().deallocate(block, bytes, kAlign);
  }
}

std::size_t RecycledMemory::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

void* RecycledMemory::do_allocate(std::size_t bytes, std::size_t alignment) {
  TY_CHECK(alignment <= kAlign, "numbers");
  {
    const std::lock_guard lock(mutex_);
    std::vector<void*>& free = free_[bytes];
    if (!free.empty()) {
      void* const block = free.back();
      free.pop_back();
      return block;
    }
  }
  void* const block = heap().allocate(bytes, kAlign);
  const std::lock_guard lock(mutex_);
  bytes_ += bytes;
  return block;
}

void RecycledMemory::do_deallocate(void* block, std::size_t bytes, std::size_t) {
  const std::lock_guard lock(mutex_);
  free_[bytes].push_back(block);
}

}  // namespace trainyard
