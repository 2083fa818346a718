// Memory of this process that other processes on the same machine read where it lies: what is sent
// to them then only says where. Nobody writes in another process's memory, so that one that was
// frozen changes nothing of the others' when it wakes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/core/recycled_memory.h"
#include "base/core/status.h"
#include "base/process/shared_memory.h"
#include "trainyard/v1/parameter_server.pb.h"

namespace trainyard::runtime::ps {

// At the beginning of a file: whose it is. A number of a process can be another's on another
// machine.
struct SharedLabel {
  static constexpr std::uint64_t kMagic = 0x314C4F4F50535954;  // "TYSPOOL1"
  std::uint64_t magic = kMagic;
  std::uint64_t id = 0;
};
// Blocks begin at such borders, behind the label: a cache line of their own.
inline constexpr std::size_t kSharedAlign = 64;

// Blocks in files in memory (SharedMemory), which grow in number as more is wanted; what comes back
// is given out again for the same size. Where no more can be shared, blocks are of the process
// alone. Thread-safe; must outlive its blocks.
class SharedPool final : public std::pmr::memory_resource {
 public:
  // One file of `file_bytes` and room for the borders of `blocks`; later files are as long. Errors
  // as of SharedMemory::create.
  static StatusOr<std::shared_ptr<SharedPool>> create(std::size_t file_bytes, std::size_t blocks);

  // Where other processes find these bytes; nothing where they cannot.
  std::optional<v1::SharedPlace> placeOf(std::span<const std::byte> bytes) const;
  // The first of its files.
  v1::SharedFile file() const;

 private:
  struct File {
    SharedMemory memory;
    std::uint64_t id = 0;
    std::size_t used = kSharedAlign;
  };
  explicit SharedPool(std::size_t file_bytes) : file_bytes_(file_bytes) {}
  Status addFile(std::size_t at_least);
  std::byte* takeNew(std::size_t bytes);
  const File* fileOf(const void* at) const;
  static v1::SharedFile describe(const File& file);

  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* block, std::size_t bytes, std::size_t alignment) override;
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  const std::size_t file_bytes_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<File>> files_;
  std::map<std::size_t, std::vector<std::byte*>> free_;  // by size
  bool full_ = false;                                    // no more can be shared
  RecycledMemory own_;                                   // of the process alone
};

// Memory for what may be shared later: blocks of a pool from when there is one, and before that, or
// where they are smaller than `at_least` bytes, of the process alone. Thread-safe.
class LatePool final : public std::pmr::memory_resource {
 public:
  explicit LatePool(std::size_t at_least) : at_least_(at_least) {}
  // Once.
  void open(std::shared_ptr<SharedPool> pool);

 private:
  std::shared_ptr<SharedPool> poolFor(std::size_t bytes) const;
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* block, std::size_t bytes, std::size_t alignment) override;
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  const std::size_t at_least_;
  mutable std::mutex mutex_;
  std::shared_ptr<SharedPool> pool_;  // null: not yet
  RecycledMemory own_;                // of the process alone
};

}  // namespace trainyard::runtime::ps
