#include "operator/kube/lines.h"

#include <utility>

#include "fmt/format.h"

namespace trainyard::control::internal {

Status LineSplitter::push(std::string_view piece,
                          const std::function<Status(std::string_view)>& on_line) {
  for (;;) {
    const std::size_t end = piece.find('\n');
    if (rest_.size() + std::min(end, piece.size()) > max_line_) {
      return absl::ResourceExhaustedError(
          fmt::format("a line of the answer has more than {} bytes", max_line_));
    }
    if (end == std::string_view::npos) {
      rest_ += piece;
      return absl::OkStatus();
    }
    const std::string_view last = piece.substr(0, end);
    piece.remove_prefix(end + 1);
    if (rest_.empty()) {
      if (!last.empty()) TY_RETURN_IF_ERROR(on_line(last));
    } else {
      const std::string line = std::exchange(rest_, {}).append(last);
      TY_RETURN_IF_ERROR(on_line(line));
    }
  }
}

}  // namespace trainyard::control::internal
