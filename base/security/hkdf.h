// Keys derived from a secret (RFC 5869, HKDF with SHA-256): who knows a derived key learns nothing
// of the secret or of its other keys.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trainyard {

// `bytes` bytes, at most 8160; the same for the same arguments. `info` says what the key is for,
// `salt` may be empty.
std::string hkdfSha256(std::string_view secret, std::string_view salt, std::string_view info,
                       std::size_t bytes);

}  // namespace trainyard
