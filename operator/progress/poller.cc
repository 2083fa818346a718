#include "operator/progress/internal/poller.h"

#include <chrono>

namespace trainyard::control {

namespace {

// One that is always set, since only an alarm can be woken.
constexpr Duration kNever = std::chrono::hours(1);

gpr_timespec toGpr(TimePoint at) {
  const auto ns = at.time_since_epoch().count();
  gpr_timespec time;
  time.clock_type = GPR_CLOCK_MONOTONIC;
  time.tv_sec = ns / 1'000'000'000;
  time.tv_nsec = static_cast<std::int32_t>(ns % 1'000'000'000);
  return time;
}

}  // namespace

Poller::~Poller() {
  {
    const std::lock_guard lock(mutex_);
    if (alarm_set_) alarm_.Cancel();
  }
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

TimePoint Poller::now() {
  const gpr_timespec now = gpr_now(GPR_CLOCK_MONOTONIC);
  return TimePoint(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec));
}

PollCall* Poller::next(std::optional<TimePoint> until) {
  if (until && *until <= now()) return ready();
  {
    const std::lock_guard lock(mutex_);
    if (woken_) {
      woken_ = false;
      return nullptr;
    }
    const TimePoint due = until.value_or(now() + kNever);
    if (!alarm_set_) {
      alarm_.Set(&queue_, toGpr(due), nullptr);
      alarm_set_ = true;
      alarm_due_ = due;
    } else if (due < alarm_due_) {
      alarm_.Cancel();  // comes out of the queue, and the next one is set
    }
  }
  void* tag = nullptr;
  bool ok = false;
  queue_.Next(&tag, &ok);
  return taken(tag);
}

PollCall* Poller::ready() {
  void* tag = nullptr;
  bool ok = false;
  const auto found = queue_.AsyncNext(&tag, &ok, gpr_time_0(GPR_CLOCK_MONOTONIC));
  return found == grpc::CompletionQueue::GOT_EVENT ? taken(tag) : nullptr;
}

PollCall* Poller::taken(void* tag) {
  if (tag != nullptr) return static_cast<PollCall*>(tag);
  const std::lock_guard lock(mutex_);
  alarm_set_ = false;
  woken_ = false;
  return nullptr;
}

void Poller::wake() {
  const std::lock_guard lock(mutex_);
  if (alarm_set_) {
    alarm_.Cancel();
  } else {
    woken_ = true;
  }
}

}  // namespace trainyard::control
