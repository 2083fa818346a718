// How far a job has come, how fast it goes, and what was lost on the way.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/core/clock.h"
#include "base/metrics/bucket_counts.h"
#include "base/metrics/catalogue.h"
#include "runtime/coordinator/coordinator_config.h"
#include "runtime/coordinator/membership.h"
#include "runtime/coordinator/outbox.h"
#include "runtime/coordinator/progress_rate.h"
#include "runtime/coordinator/push_tickets.h"
#include "trainyard/v1/agent.pb.h"
#include "trainyard/v1/coordinator.pb.h"
#include "trainyard/v1/measurements.pb.h"

namespace trainyard::runtime {

// Not thread-safe.
class Progress {
 public:
  // `version`: where a job goes on.
  Progress(const CoordinatorConfig& config, std::int64_t version);

  // The newest version that is known to be complete.
  std::int64_t version() const { return version_; }
  void reach(std::int64_t version) { version_ = version; }
  const ProgressRate& rate() const { return rate_; }

  // What the job had lost before this process; its count goes on from there.
  void adopt(std::int64_t lost_steps) { lost_steps_ = std::max(lost_steps_, lost_steps); }

  // A membership came while the job computes.
  void onChange(TimePoint now) { changed_at_ = now; }
  // From what members report under the epoch that runs. `pushes`: in the asynchronous modes.
  void follow(const Membership& membership, const v1::EpochInfo& epoch, const PushTickets* pushes,
              TimePoint now, Outbox& out);
  // `ran`: the job has computed in it, or in one before.
  void endEpoch(bool ran, TimePoint now);
  // The newest version that was complete, by what workers hold when all are sealed.
  std::int64_t heldVersion(const Membership& membership) const;
  // The next epoch starts at `first`, though `held` was complete; `restored`: from a checkpoint.
  void startEpoch(std::int64_t first, std::int64_t held, bool restored);
  // The epoch computes from now on.
  void begin(std::int64_t first, TimePoint now) { rate_.observe(first, now); }
  // The job ends at a checkpoint of this version.
  void giveUpAfter(std::int64_t version);

  void tell(v1::View& view) const;
  void tell(v1::JobProgress& progress, std::int64_t step_samples) const;
  void measure(v1::Measurements& measured) const;

 private:
  const bool ring_;
  std::int64_t version_;
  ProgressRate rate_;
  double loss_ = 0;
  std::int64_t loss_step_ = -1;
  std::int64_t lost_steps_ = 0;
  std::int64_t resumed_from_ = -1;
  // When the newest membership came, until an epoch with it has taken a step.
  std::optional<TimePoint> changed_at_;
  std::optional<TimePoint> epoch_ended_;  // until the next one has taken a step
  BucketCounts epoch_change_times_{metric("trainyard_epoch_change_seconds").buckets};
};

}  // namespace trainyard::runtime
