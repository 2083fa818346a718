// Waits for calls to end and for a time to come, in one place.
#pragma once

#include <mutex>
#include <optional>

#include "base/core/clock.h"
#include "grpcpp/alarm.h"
#include "grpcpp/grpcpp.h"
#include "operator/progress/internal/poll_round.h"

namespace trainyard::control {

// One thread waits; wake() is for any thread.
class Poller {
 public:
  ~Poller();

  // gRPC's clock, which never jumps.
  static TimePoint now();

  // Where the calls are begun that next() tells of.
  grpc::CompletionQueue& queue() { return queue_; }
  // The next call that is over; null at `until`, when woken, and now and then for nothing.
  // Connections that are being made get on meanwhile, also where `until` is over: then it does not
  // wait.
  PollCall* next(std::optional<TimePoint> until);
  // Lets next() return soon, also when it is called later.
  void wake();

 private:
  PollCall* ready();
  PollCall* taken(void* tag);

  grpc::CompletionQueue queue_;
  std::mutex mutex_;
  grpc::Alarm alarm_;  // its tag is null
  bool alarm_set_ = false;
  TimePoint alarm_due_;
  bool woken_ = false;
};

}  // namespace trainyard::control
