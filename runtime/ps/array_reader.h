// Takes one array after the other from a body, whose lengths others have told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace trainyard::runtime::ps {

// Does not own the body.
class ArrayReader {
 public:
  explicit ArrayReader(std::span<const std::byte> body) : rest_(body) {}

  // False: the body ends before. Nothing is made of a number that only a header claims.
  template <typename T>
  bool array(std::uint64_t count, std::vector<T>& values) {
    std::span<const std::byte> found;
    if (!bytes(count, sizeof(T), found)) return false;
    values.resize(count);
    if (count > 0) std::memcpy(values.data(), found.data(), found.size());
    return true;
  }
  // The next `count` things of `size` bytes as they lie there.
  bool bytes(std::uint64_t count, std::size_t size, std::span<const std::byte>& found) {
    if (rest_.size() / size < count) return false;
    found = rest_.first(count * size);
    rest_ = rest_.subspan(count * size);
    return true;
  }
  bool atEnd() const { return rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
};

}  // namespace trainyard::runtime::ps
