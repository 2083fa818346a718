// Numbers for people.
#pragma once

#include <cstdint>
#include <string>

namespace trainyard {

inline constexpr std::int64_t kKiB = 1024;
inline constexpr std::int64_t kMiB = 1024 * 1024;
inline constexpr std::int64_t kGiB = 1024 * 1024 * 1024;

std::string formatCount(std::int64_t n);    // 13,094,016
std::string formatBytes(double bytes);      // "12.5 MB" (powers of 1000)
std::string formatSeconds(double seconds);  // "850 ms", "12.3 s", "4m05s", "2h03m"

}  // namespace trainyard
