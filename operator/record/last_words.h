// What a task said last, from the end of what it wrote.
#pragma once

#include <string>
#include <string_view>

namespace trainyard::control {

// The last error line of our programs, as text or JSON, without time, level and task; "" where
// there is none.
std::string lastErrorIn(std::string_view text);
// The last line that is none of our own programs', at most 200 bytes of it; "" where there is none.
std::string lastOutputIn(std::string_view text);

}  // namespace trainyard::control
