// Comparing secrets.
#pragma once

#include <string_view>

namespace trainyard {

// Compares in a time that does not depend on where the two differ.
bool equalInConstantTime(std::string_view a, std::string_view b);

}  // namespace trainyard
