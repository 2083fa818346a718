// Keyed hashes (RFC 2104, HMAC with SHA-256).
#pragma once

#include <string>
#include <string_view>

namespace trainyard {

// 32 bytes, not as text.
std::string hmacSha256(std::string_view key, std::string_view text);

}  // namespace trainyard
