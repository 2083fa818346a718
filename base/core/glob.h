#pragma once

#include <string_view>

namespace trainyard {

// Whether all of `name` fits a pattern in which * stands for any characters, also none, and ? for
// one.
bool matchesGlob(std::string_view pattern, std::string_view name);

}  // namespace trainyard
