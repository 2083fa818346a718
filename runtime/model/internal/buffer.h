// Memory for numbers, aligned as vector units and oneDNN like it and not initialised.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace trainyard::runtime {

template <typename T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::int64_t size) { atLeast(size); }

  // Grows to this many values, and then holds what the memory happens to hold; never shrinks.
  // std::bad_alloc where there is no memory.
  T* atLeast(std::int64_t size) {
    if (size > size_) {
      data_.reset();
      size_ = 0;
      data_.reset(static_cast<T*>(::operator new (static_cast<std::size_t>(size) * sizeof(T),
                                                  std::align_val_t{kAlignment})));
      size_ = size;
    }
    return data_.get();
  }
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }

 private:
  static constexpr std::size_t kAlignment = 64;
  struct Free {
    void operator()(T* data) const { ::operator delete (data, std::align_val_t{kAlignment}); }
  };
  std::unique_ptr<T, Free> data_;
  std::int64_t size_ = 0;
};

}  // namespace trainyard::runtime
