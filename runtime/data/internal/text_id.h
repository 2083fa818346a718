// The id of a text.
#pragma once

#include <farmhash.h>

#include <cstdint>
#include <string_view>

namespace trainyard::runtime::internal {

// farmhash's Fingerprint64, which TensorFlow's to_hash_bucket_fast takes (and divides by the number
// of buckets).
inline std::uint64_t textId(std::string_view text) {
  return util::Fingerprint64(text.data(), text.size());
}

}  // namespace trainyard::runtime::internal
