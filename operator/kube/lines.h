// Lines out of pieces of a stream.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "base/core/status.h"

namespace trainyard::control::internal {

// Pieces may be cut anywhere, also inside a character of UTF-8: only whole lines are handed on.
class LineSplitter {
 public:
  explicit LineSplitter(std::size_t max_line) : max_line_(max_line) {}

  // Calls `on_line` for each line that `piece` completes, without its end; empty ones are left
  // out. Stops at the first failure and returns it. RESOURCE_EXHAUSTED for a line that is longer
  // than allowed.
  Status push(std::string_view piece, const std::function<Status(std::string_view)>& on_line);
  // What came after the last line.
  const std::string& rest() const { return rest_; }

 private:
  const std::size_t max_line_;
  std::string rest_;
};

}  // namespace trainyard::control::internal
