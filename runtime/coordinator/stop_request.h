// A job is to stop at a checkpoint, within bounded time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/core/clock.h"

namespace trainyard::runtime {

class StopRequest {
 public:
  // Of several requests the earliest end counts. True: it is the first.
  bool ask(TimePoint now, Duration within) {
    const TimePoint by = now + within;
    by_ = asked_ ? std::min(by_, by) : by;
    if (std::exchange(asked_, true)) return false;
    since_ = now;
    return true;
  }
  bool asked() const { return asked_; }
  // There is no time left for a checkpoint.
  bool late(TimePoint now) const { return now >= by_; }
  // That there was.
  Duration limit() const { return by_ - since_; }

  // The version at which the epoch's workers rest; -1: not known yet.
  std::int64_t version() const { return version_; }
  void setVersion(std::int64_t version) { version_ = version; }
  void endEpoch() { version_ = -1; }

 private:
  bool asked_ = false;
  TimePoint since_{};
  TimePoint by_{};
  std::int64_t version_ = -1;
};

}  // namespace trainyard::runtime
