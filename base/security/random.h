// Bytes that nobody can guess, from the kernel. For tokens and identifiers; everything that must be
// repeatable uses base/core/rng.h.
#pragma once

#include <cstddef>
#include <string>

namespace trainyard {

// `bytes` random bytes as lower-case hex digits, two for each. Blocks only in the first moments of
// a machine's life.
std::string randomHex(std::size_t bytes);

}  // namespace trainyard
