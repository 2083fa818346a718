#include "tests/fuzz/memory_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/core/check.h"

namespace trainyard::fuzz {

MemoryFile::MemoryFile(std::string_view content) : fd_(::memfd_create("input", MFD_CLOEXEC)) {
  TY_CHECK(fd_.valid(), "there is room for one more file");
  while (!content.empty()) {
    const ssize_t n = ::write(fd_.get(), content.data(), content.size());
    TY_CHECK(n > 0, "there is memory for a small file");
    content.remove_prefix(static_cast<std::size_t>(n));
  }
}

}  // namespace trainyard::fuzz
