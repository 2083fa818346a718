// The values of one column of samples, behind each other: in memory, or in a file of a folder.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>

#include "base/core/status.h"
#include "base/process/growing_memory.h"

namespace trainyard::runtime::internal {

// What arrays of one set of samples share.
struct ValueStore {
  std::string folder;  // where their files are; empty: they are in memory
  Status status;       // why a value was dropped: no room
};

template <typename T>
class ValueArray {
 public:
  static_assert(std::is_trivially_copyable_v<T>);
  // The store must outlive it.
  explicit ValueArray(ValueStore& store) : store_(&store) {}
  ValueArray(ValueArray&&) noexcept = default;

  // Where there is no room for it, and none to be had, it is dropped: ValueStore::status.
  void push_back(T value) {
    if (size_ == room() && !grow()) return;
    data()[size_++] = value;
  }
  // Gives back room that is not used.
  void shrinkToFit() {
    if (size_ > 0 && size_ < room()) note(memory_.resize(size_ * sizeof(T)));
  }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T operator[](std::size_t i) const { return data()[i]; }
  std::span<const T> values() const { return {data(), size_}; }

 private:
  static constexpr std::size_t kFirstBytes = std::size_t{64} << 10;

  T* data() const { return reinterpret_cast<T*>(memory_.data()); }
  std::size_t room() const { return memory_.bytes() / sizeof(T); }
  bool note(const Status& status) {
    if (!status.ok() && store_->status.ok()) store_->status = status;
    return status.ok();
  }
  // By half: growing moves no value, the kernel has them elsewhere.
  bool grow() {
    if (!store_->status.ok()) return false;
    if (memory_.bytes() == 0 && !store_->folder.empty()) {
      StatusOr<GrowingMemory> file = GrowingMemory::inFolder(store_->folder);
      if (!note(file.status())) return false;
      memory_ = std::move(*file);
    }
    const std::size_t more = memory_.bytes() / 2 / kFirstBytes * kFirstBytes;
    return note(memory_.resize(memory_.bytes() + std::max(kFirstBytes, more)));
  }

  ValueStore* store_;
  GrowingMemory memory_;
  std::size_t size_ = 0;
};

}  // namespace trainyard::runtime::internal
