// Text that others wrote, for a terminal or a log.
#pragma once

#include <string>
#include <string_view>

namespace trainyard {

// One line: control characters become "\\n" or "\\x1b", the rest stays as it is.
std::string printable(std::string_view text);

}  // namespace trainyard
