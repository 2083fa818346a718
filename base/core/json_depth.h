// JSON that comes from outside, before it is parsed.
#pragma once

#include <string_view>

namespace trainyard {

inline constexpr int kMaxJsonDepth = 100;

// Whether lists and objects are nested deeper than kMaxJsonDepth, which nothing of ours is. Our
// library parses any depth, but copies and prints with a call for each level: a few megabytes of
// '[' would be the end of the stack. Text that is no JSON may get either answer.
bool jsonIsTooDeep(std::string_view text);

}  // namespace trainyard
