#include "base/core/sleep.h"

#include <thread>

namespace trainyard {

void sleepUntil(TimePoint at) {
  std::this_thread::sleep_until(at);
}

}  // namespace trainyard
