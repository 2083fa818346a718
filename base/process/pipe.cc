#include "base/process/pipe.h"

#include <fcntl.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstdint>

namespace trainyard {

StatusOr<Pipe> makePipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return errnoStatus(errno, "pipe");
  return Pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

StatusOr<WakeUp> WakeUp::create() {
  const int fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) return errnoStatus(errno, "eventfd");
  return WakeUp(UniqueFd(fd));
}

void WakeUp::wake() const {
  const std::uint64_t one = 1;
  // Fails only when the counter is full, and then fd() is readable already.
  [[maybe_unused]] const ssize_t n = ::write(fd_.get(), &one, sizeof one);
}

void WakeUp::clear() const {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t n = ::read(fd_.get(), &count, sizeof count);
}

}  // namespace trainyard
