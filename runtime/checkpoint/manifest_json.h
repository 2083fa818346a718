// A manifest as JSON. Strict: every field present, none unknown, every number and list bounded.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/core/status.h"
#include "runtime/checkpoint/checkpoint.h"

namespace trainyard::runtime {

inline constexpr std::size_t kMaxManifestBytes = 16u << 20;

std::string manifestToJson(const Manifest& manifest);
// INVALID_ARGUMENT names the field, e.g. "files[2].sha256: expected 64 hex digits".
StatusOr<Manifest> manifestFromJson(std::string_view text);
// What manifestFromJson() checks beyond types.
Status validateManifest(const Manifest& manifest);

}  // namespace trainyard::runtime
