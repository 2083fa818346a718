#include "base/security/constant_time.h"

#include <cstddef>

namespace trainyard {

bool equalInConstantTime(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;  // the length is no secret
  unsigned char difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<unsigned char>(
        difference | (static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i])));
  }
  const volatile unsigned char result = difference;
  return result == 0;
}

}  // namespace trainyard
