// Paths of objects in a store with S3's interface: "s3://BUCKET/KEY".
#pragma once

#include <string_view>

namespace trainyard {

inline constexpr std::string_view kObjectScheme = "s3://";

constexpr bool isObjectPath(std::string_view path) {
  return path.starts_with(kObjectScheme);
}

}  // namespace trainyard
