#include "runtime/ps/shared_pool.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <functional>
#include <utility>

#include "base/core/check.h"
#include "base/core/log.h"
#include "base/core/strings.h"
#include "base/security/random.h"

namespace trainyard::runtime::ps {
namespace {

std::size_t aligned(std::size_t bytes) {
  return (bytes + kSharedAlign - 1) / kSharedAlign * kSharedAlign;
}

std::uint64_t randomId() {
  const std::string digits = randomHex(8);
  std::uint64_t id = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), id, 16);
  return id | 1;  // 0 is nobody's
}

}  // namespace

StatusOr<std::shared_ptr<SharedPool>> SharedPool::create(std::size_t file_bytes,
                                                         std::size_t blocks) {
  const std::size_t bytes = kSharedAlign + aligned(file_bytes) + blocks * kSharedAlign;
  std::shared_ptr<SharedPool> pool(new SharedPool(bytes));
  TY_RETURN_IF_ERROR(pool->addFile(0));
  return pool;
}

Status SharedPool::addFile(std::size_t at_least) {
  const std::size_t bytes = std::max(file_bytes_, kSharedAlign + at_least);
  TY_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::create("trainyard-chunks", bytes));
  const SharedLabel label{.id = randomId()};
  std::memcpy(memory.data(), &label, sizeof(label));
  files_.push_back(std::make_unique<File>(File{std::move(memory), label.id}));
  return absl::OkStatus();
}

// With the mutex held; null: nothing more can be shared.
std::byte* SharedPool::takeNew(std::size_t bytes) {
  if (files_.back()->used + bytes > files_.back()->memory.bytes()) {
    if (full_) return nullptr;
    if (const Status added = addFile(bytes); !added.ok()) {
      TY_INFO("no more memory is shared: {}", fromAbsl(added.message()));
      full_ = true;
      return nullptr;
    }
  }
  File& file = *files_.back();
  return file.memory.data() + std::exchange(file.used, file.used + bytes);
}

void* SharedPool::do_allocate(std::size_t bytes, std::size_t alignment) {
  TY_CHECK(alignment <= kSharedAlign, "floats");
  const std::size_t size = aligned(bytes);
  const std::lock_guard lock(mutex_);
  std::vector<std::byte*>& free = free_[size];
  if (!free.empty()) {
    std::byte* const block = free.back();
    free.pop_back();
    return block;
  }
  std::byte* const block = takeNew(size);
  return block != nullptr ? block : own_.allocate(size, kSharedAlign);
}

void SharedPool::do_deallocate(void* block, std::size_t bytes, std::size_t) {
  const std::size_t size = aligned(bytes);
  {
    const std::lock_guard lock(mutex_);
    if (fileOf(block) != nullptr) {
      free_[size].push_back(static_cast<std::byte*>(block));
      return;
    }
  }
  own_.deallocate(block, size, kSharedAlign);
}

const SharedPool::File* SharedPool::fileOf(const void* at) const {
  const auto* byte = static_cast<const std::byte*>(at);
  const std::less<> before;
  for (const auto& file : files_) {
    const std::byte* const begin = file->memory.data();
    if (!before(byte, begin) && before(byte, begin + file->memory.bytes())) return file.get();
  }
  return nullptr;
}

v1::SharedFile SharedPool::describe(const File& file) {
  v1::SharedFile described;
  described.set_pid(::getpid());
  described.set_fd(file.memory.fd());
  described.set_id(file.id);
  described.set_bytes(file.memory.bytes());
  return described;
}

std::optional<v1::SharedPlace> SharedPool::placeOf(std::span<const std::byte> bytes) const {
  const std::lock_guard lock(mutex_);
  const File* const file = bytes.empty() ? nullptr : fileOf(bytes.data());
  if (file == nullptr) return std::nullopt;
  const auto offset = static_cast<std::size_t>(bytes.data() - file->memory.data());
  TY_CHECK(bytes.size() <= file->memory.bytes() - offset, "bytes of one block");
  v1::SharedPlace place;
  *place.mutable_file() = describe(*file);
  place.set_offset(offset);
  place.set_bytes(bytes.size());
  return place;
}

v1::SharedFile SharedPool::file() const {
  const std::lock_guard lock(mutex_);
  return describe(*files_.front());
}

void LatePool::open(std::shared_ptr<SharedPool> pool) {
  const std::lock_guard lock(mutex_);
  pool_ = std::move(pool);
}

std::shared_ptr<SharedPool> LatePool::poolFor(std::size_t bytes) const {
  if (bytes < at_least_) return nullptr;
  const std::lock_guard lock(mutex_);
  return pool_;
}

void* LatePool::do_allocate(std::size_t bytes, std::size_t alignment) {
  TY_CHECK(alignment <= kSharedAlign, "floats");
  const auto pool = poolFor(bytes);
  return pool == nullptr ? own_.allocate(aligned(bytes), kSharedAlign)
                         : pool->allocate(bytes, alignment);
}

// The pool takes what is from before there was one for blocks of its process alone.
void LatePool::do_deallocate(void* block, std::size_t bytes, std::size_t alignment) {
  const auto pool = poolFor(bytes);
  if (pool == nullptr) return own_.deallocate(block, aligned(bytes), kSharedAlign);
  pool->deallocate(block, bytes, alignment);
}

}  // namespace trainyard::runtime::ps
