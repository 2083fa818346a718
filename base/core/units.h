// Numbers for people, and numbers as people type them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trainyard {

inline constexpr std::int64_t kKiB = 1024;
inline constexpr std::int64_t kMiB = 1024 * 1024;
inline constexpr std::int64_t kGiB = 1024 * 1024 * 1024;

std::string formatCount(std::int64_t n);    // 13,094,016
std::string formatBytes(double bytes);      // "12.5 MB" (powers of 1000)
std::string formatSeconds(double seconds);  // "850 ms", "12.3 s", "4m05s", "2h03m"

// Bits per second: "10Gbit", "2.5 Gbit/s", "100mbit"; the units of tc: bit, kbit, Mbit, Gbit and
// Tbit, powers of 1000, in any case. Nothing for zero or less, and for what is no such rate: "10G"
// and "10Gbps" too, which mean bytes to some and bits to others.
std::optional<double> parseBitRate(std::string_view text);
// "3274634", "25.6M", "1.5k", "2G": a whole number above zero below 2^53, powers of 1000.
std::optional<std::int64_t> parseCount(std::string_view text);

}  // namespace trainyard
