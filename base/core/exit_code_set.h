// Sets of exit codes as a shell tells them: what a program ended with, or 128 + the signal that
// killed it.
#pragma once

#include <bitset>
#include <optional>
#include <string>
#include <string_view>

namespace trainyard {

inline constexpr int kLastExitCode = 255;

// `code` and `signal` of one end; one of them is 0.
inline constexpr int shellExitCode(int code, int signal) {
  return signal != 0 ? 128 + signal : code;
}

// Of 0 to kLastExitCode. A value.
class ExitCodeSet {
 public:
  // "1-3,42", rising; "" is the empty set. Nothing where it is something else.
  static std::optional<ExitCodeSet> parse(std::string_view text);
  std::string toString() const;

  void add(int code) { codes_.set(static_cast<std::size_t>(code)); }
  bool has(int code) const {
    return code >= 0 && code <= kLastExitCode && codes_[static_cast<std::size_t>(code)];
  }
  bool empty() const { return codes_.none(); }
  bool operator==(const ExitCodeSet&) const = default;

 private:
  std::bitset<kLastExitCode + 1> codes_;
};

}  // namespace trainyard
