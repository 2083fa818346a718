#include "runtime/task/part_copier.h"

#include <chrono>
#include <utility>

#include "base/core/log.h"
#include "base/core/strings.h"

namespace trainyard::runtime {
namespace {

// Between two looks at what has come since: a second's updates are little beside the rows.
constexpr auto kPause = std::chrono::milliseconds(200);
constexpr Duration kMoment = std::chrono::milliseconds(300);
constexpr auto kPauseAfterFailure = std::chrono::seconds(1);

}  // namespace

void PartCopier::start(const v1::EpochInfo& epoch) {
  thread_ = std::jthread([this, epoch](const std::stop_token& stop) { run(epoch, stop); });
}

void PartCopier::run(const v1::EpochInfo& epoch, const std::stop_token& stop) {
  Duration former = Duration::max();
  while (!stop.stop_requested()) {
    const TimePoint begin = clock_.now();
    const Status copied = copy_(epoch, [&] { return stop.stop_requested(); });
    if (absl::IsCancelled(copied)) return;
    const Duration took = clock_.now() - begin;
    if (!copied.ok()) {
      TY_WARN("epoch {}: parts of tables are not copied yet: {}", epoch.epoch(),
              fromAbsl(copied.message()));
    } else if (took > kMoment && took < former / 4 * 3) {
      former = took;
      continue;
    } else {
      copied_(epoch);
    }
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, stop, copied.ok() ? kPause : kPauseAfterFailure, [] { return false; });
  }
}

}  // namespace trainyard::runtime
