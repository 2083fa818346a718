// An input as a gzip stream.
#pragma once

#include <string>
#include <string_view>

namespace trainyard::fuzz {

std::string packed(std::string_view content);

}  // namespace trainyard::fuzz
