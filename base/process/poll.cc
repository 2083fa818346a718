#include "base/process/poll.h"

#include <algorithm>
#include <cerrno>
#include <ctime>

namespace trainyard {

int pollUntil(std::span<pollfd> fds, TimePoint deadline) {
  for (;;) {
    // An hour at a time: a deadline of TimePoint::max() must not overflow timespec arithmetic.
    const Duration left =
        std::clamp<Duration>(deadline - systemClock().now(), Duration(0), std::chrono::hours(1));
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    const timespec timeout{.tv_sec = seconds.count(), .tv_nsec = (left - seconds).count()};
    const int ready = ::ppoll(fds.data(), fds.size(), &timeout, nullptr);
    if (ready > 0) return ready;
    if (ready < 0 && errno != EINTR) return 0;
    if (systemClock().now() >= deadline) return 0;
  }
}

bool waitReadable(int fd, TimePoint deadline) {
  pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
  return pollUntil({&entry, 1}, deadline) > 0;
}

}  // namespace trainyard
