// Copies parts of tables beside training, until who is to hold them is close behind who does.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "trainyard/v1/coordinator.pb.h"

namespace trainyard::runtime {

// One thread's, with a thread of its own.
class PartCopier {
 public:
  // Gets what is missing; as of EpochContents::copy().
  using Copy = std::function<Status(const v1::EpochInfo&, const std::function<bool()>& over)>;
  // `copied` is told, perhaps more than once and on the copier's thread, when all is here and close
  // behind: what came since is fetched in a moment, or in no less time than what had come before
  // it.
  PartCopier(const Clock& clock, Copy copy, std::function<void(const v1::EpochInfo&)> copied)
      : clock_(clock), copy_(std::move(copy)), copied_(std::move(copied)) {}

  // Of an epoch that has begun, and of none before it. Waits for the former one's end.
  void start(const v1::EpochInfo& epoch);
  // The epoch is over; does not wait.
  void stop() { thread_.request_stop(); }

 private:
  void run(const v1::EpochInfo& epoch, const std::stop_token& stop);

  const Clock& clock_;
  const Copy copy_;
  const std::function<void(const v1::EpochInfo&)> copied_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;  // last: it uses the rest
};

}  // namespace trainyard::runtime
