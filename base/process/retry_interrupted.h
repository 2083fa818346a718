// System calls that a signal may interrupt.
#pragma once

#include <cerrno>

namespace trainyard {

// What `call` returns, the first time that it is not -1 with EINTR.
template <typename Call>
auto retryInterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace trainyard
