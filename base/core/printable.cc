#include "base/core/printable.h"

#include "absl/strings/escaping.h"

namespace trainyard {

std::string printable(std::string_view text) {
  std::string line;
  line.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      line += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      line += "\\x" + absl::BytesToHexString({&c, 1});
    } else {
      line += c;
    }
  }
  return line;
}

}  // namespace trainyard
