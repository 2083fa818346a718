// The bytes of a message's body: written one after the other, and read with every length checked.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace trainyard::runtime::session {

class BodyWriter {
 public:
  template <typename T>
  BodyWriter& number(T value) {
    static_assert(std::is_arithmetic_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  BodyWriter& text(std::string_view text) {
    number(static_cast<std::uint32_t>(text.size()));
    bytes_.append(text);
    return *this;
  }
  template <typename T>
  BodyWriter& numbers(std::span<const T> values) {
    static_assert(std::is_arithmetic_v<T>);
    number(static_cast<std::uint32_t>(values.size()));
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
    return *this;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// After the first thing that is not there everything reads as zero, and whole() is false.
class BodyReader {
 public:
  explicit BodyReader(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  T number() {
    static_assert(std::is_arithmetic_v<T>);
    T value{};
    if (const std::string_view found = next(sizeof value); !found.empty())
      std::memcpy(&value, found.data(), sizeof value);
    return value;
  }
  std::string text() { return std::string(next(number<std::uint32_t>())); }
  template <typename T>
  std::vector<T> numbers() {
    static_assert(std::is_arithmetic_v<T>);
    const auto count = number<std::uint32_t>();
    const std::string_view found = next(std::size_t{count} * sizeof(T));
    std::vector<T> values(found.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), found.data(), found.size());
    return values;
  }
  bool failed() const { return failed_; }
  // All that was read was there, and nothing is left.
  bool whole() const { return !failed_ && bytes_.empty(); }

 private:
  std::string_view next(std::size_t count) {
    failed_ = failed_ || count > bytes_.size();
    if (failed_) return {};
    const std::string_view found = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return found;
  }

  std::string_view bytes_;
  bool failed_ = false;
};

}  // namespace trainyard::runtime::session
