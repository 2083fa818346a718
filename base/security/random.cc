#include "base/security/random.h"

#include <sys/random.h>

#include <cerrno>

#include "absl/strings/escaping.h"
#include "base/core/check.h"

namespace trainyard {

std::string randomHex(std::size_t bytes) {
  std::string buffer(bytes, '\0');
  std::size_t filled = 0;
  while (filled < bytes) {
    const ssize_t got = ::getrandom(buffer.data() + filled, bytes - filled, 0);
    TY_CHECK(got > 0 || errno == EINTR, "the kernel has random bytes once it has booted");
    if (got > 0) filled += static_cast<std::size_t>(got);
  }
  return absl::BytesToHexString(buffer);
}

}  // namespace trainyard
