// A short and fast proof that a message is of somebody who knows a key: SipHash-2-4.
//
// Source: J.-P. Aumasson and D. J. Bernstein, "SipHash: a fast short-input PRF", 2012.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string_view>

struct evp_mac_ctx_st;

namespace trainyard {

// Not thread-safe.
class SipHash {
 public:
  static constexpr std::size_t kKeyBytes = 16;

  // Precondition: `key` has kKeyBytes.
  explicit SipHash(std::string_view key);
  ~SipHash();
  SipHash(SipHash&&) noexcept;
  SipHash& operator=(SipHash&&) = delete;

  // Of the parts, one after the other.
  std::uint64_t of(std::initializer_list<std::string_view> parts);

 private:
  struct Free {
    void operator()(evp_mac_ctx_st* context) const;
  };
  std::unique_ptr<evp_mac_ctx_st, Free> context_;
  std::array<unsigned char, kKeyBytes> key_{};
};

}  // namespace trainyard
