// An input as a file that has a path, for parsers that open one.
#pragma once

#include <string>
#include <string_view>

#include "base/process/unique_fd.h"

namespace trainyard::fuzz {

// In memory; gone with the object.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view content);
  // DIR/NAME of it.
  std::string path() const { return std::string(dir()) + "/" + name(); }
  static const char* dir() { return "/proc/self/fd"; }
  std::string name() const { return std::to_string(fd_.get()); }

 private:
  UniqueFd fd_;
};

}  // namespace trainyard::fuzz
