// Memory for large arrays of few sizes that come and go all the time.
#pragma once

#include <cstddef>
#include <map>
#include <memory_resource>
#include <mutex>
#include <vector>

namespace trainyard {

// What comes back is given out again for the same size, and to the heap at the end only. The heap
// itself takes an aligned block from a larger one that is free, so that the hole which the same
// array left is too small for it once its end has gone to something else: a process that takes and
// frees the same arrays in each step grows for a long time. Blocks of another one may come back
// here. Thread-safe; must outlive its blocks.
class RecycledMemory final : public std::pmr::memory_resource {
 public:
  RecycledMemory() = default;
  ~RecycledMemory() override;
  RecycledMemory(const RecycledMemory&) = delete;
  RecycledMemory& operator=(const RecycledMemory&) = delete;

  // Taken from the heap, given out or not.
  std::size_t bytes() const;

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* block, std::size_t bytes, std::size_t alignment) override;
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  mutable std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> free_;  // by size
  std::size_t bytes_ = 0;
};

}  // namespace trainyard
