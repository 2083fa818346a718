#include "base/process/internal/line_reader.h"

#include <fcntl.h>

#include <cerrno>

#include "base/process/poll.h"

namespace trainyard::internal {
namespace {

constexpr std::size_t kMaxLine = 64 * 1024;

}  // namespace

LineReader::LineReader(UniqueFd source, WakeUp stop, std::function<void(std::string_view)> on_line)
    : source_(std::move(source)), stop_(std::move(stop)), on_line_(std::move(on_line)) {
  ::fcntl(source_.get(), F_SETFL, O_NONBLOCK);
  thread_ = std::thread([this] { run(); });
}

void LineReader::finish() {
  if (!thread_.joinable()) return;
  stop_.wake();
  thread_.join();
}

void LineReader::run() {
  for (;;) {
    pollfd fds[2] = {{.fd = source_.get(), .events = POLLIN, .revents = 0},
                     {.fd = stop_.fd(), .events = POLLIN, .revents = 0}};
    pollUntil(fds, TimePoint::max());
    const bool stopping = fds[1].revents != 0;
    if (fds[0].revents != 0) {
      if (!readSome()) break;
    } else if (stopping) {
      break;
    }
  }
  if (!partial_.empty()) on_line_(partial_);
}

bool LineReader::readSome() {
  char buffer[16 * 1024];
  const ssize_t n = ::read(source_.get(), buffer, sizeof buffer);
  if (n < 0) return errno == EINTR || errno == EAGAIN;
  if (n == 0) return false;
  emit({buffer, static_cast<std::size_t>(n)});
  return true;
}

void LineReader::emit(std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    partial_.append(text.substr(0, end));
    if (end == std::string_view::npos && partial_.size() < kMaxLine) return;
    on_line_(partial_);
    partial_.clear();
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

}  // namespace trainyard::internal
