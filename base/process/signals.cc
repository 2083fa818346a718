#include "base/process/signals.h"

#include <sys/signalfd.h>

#include <cerrno>
#include <csignal>

#include "base/process/poll.h"

namespace trainyard {

StatusOr<SignalWaiter> SignalWaiter::create(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : signals) {
    sigaddset(&set, number);
    // Ignored signals (inherited so, e.g. in background jobs of a shell) are not even collected.
    ::signal(number, SIG_DFL);
  }
  if (const int error = pthread_sigmask(SIG_BLOCK, &set, nullptr); error != 0) {
    return errnoStatus(error, "block signals");
  }
  const int fd = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) return errnoStatus(errno, "signalfd");
  return SignalWaiter(UniqueFd(fd));
}

std::optional<int> SignalWaiter::next() {
  signalfd_siginfo info{};
  if (::read(fd_.get(), &info, sizeof info) != static_cast<ssize_t>(sizeof info))
    return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

std::optional<int> SignalWaiter::wait(TimePoint deadline) {
  if (!waitReadable(fd_.get(), deadline)) return std::nullopt;
  return next();
}

}  // namespace trainyard
