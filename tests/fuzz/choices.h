// The bytes of an input as choices of the fuzzer's, one after the other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace trainyard::fuzz {

class Choices {
 public:
  explicit Choices(std::string_view bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  // 0 when there are no more.
  std::uint8_t byte() {
    const std::string_view one = take(1);
    return one.empty() ? 0 : static_cast<std::uint8_t>(one[0]);
  }
  // At most so many.
  std::string_view take(std::size_t most) {
    const std::string_view taken = bytes_.substr(0, std::min(most, bytes_.size()));
    bytes_.remove_prefix(taken.size());
    return taken;
  }
  std::string_view rest() { return take(bytes_.size()); }

 private:
  std::string_view bytes_;
};

}  // namespace trainyard::fuzz
