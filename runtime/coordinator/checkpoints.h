// When a checkpoint is taken, of which version, and which is the newest that a job can go back to.
//
// With common steps a version a little ahead is named in time, and the servers copy their chunks as
// they reach it. Without, no push begins any more until all servers have copied their state between
// two updates.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "base/metrics/bucket_counts.h"
#include "base/metrics/catalogue.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/coordinator/coordinator_config.h"
#include "runtime/coordinator/epochs.h"
#include "runtime/coordinator/job_steps.h"
#include "runtime/coordinator/membership.h"
#include "runtime/coordinator/outbox.h"
#include "runtime/coordinator/progress.h"
#include "runtime/coordinator/push_tickets.h"
#include "runtime/coordinator/tickets.h"
#include "trainyard/v1/agent.pb.h"
#include "trainyard/v1/coordinator.pb.h"
#include "trainyard/v1/measurements.pb.h"

namespace trainyard::runtime {

// Not thread-safe. What returns a text has found that the job must fail, and says why: only the
// last checkpoint of a run must succeed.
class Checkpoints {
 public:
  using Failure = std::optional<std::string>;

  Checkpoints(const CoordinatorConfig& config, std::optional<Manifest> newest, TimePoint now);

  // What the job goes back to; nothing: its beginning.
  const std::optional<Manifest>& newest() const { return newest_; }
  // Its version; -1: there is none.
  std::int64_t newestStep() const { return newest_ ? newest_->step : -1; }
  // The manifest of one is being written.
  bool committing() const { return committing_ >= 0; }
  // One that is let end before workers or servers change, which would void it.
  bool busy(TimePoint now) const;

  // While the epoch computes. `resting`: workers rest after their step, to change; a checkpoint
  // would put that off.
  Failure followSteps(const Membership& membership, const Epochs& epochs, const JobSteps& steps,
                      const Progress& progress, bool resting, TimePoint now, Outbox& out);
  // The same in the asynchronous modes.
  Failure followPushes(const Membership& membership, const Epochs& epochs, const JobSteps& steps,
                       Tickets& tickets, TimePoint now, Outbox& out);
  // Commits `version` when every writer has written its part under this epoch. `pushes`: in the
  // asynchronous modes.
  Failure tryCommit(std::int64_t version, const Membership& membership, const Epochs& epochs,
                    const JobSteps& steps, const PushTickets* pushes, TimePoint now, Outbox& out);
  // Result of a CommitAction.
  Failure onCommitted(const Manifest& manifest, const Status& status, const Epochs& epochs,
                      const JobSteps& steps, TimePoint now, Outbox& out);

  // The one that is asked for comes to nothing.
  void drop() { pending_.reset(); }
  void endEpoch();
  // Asynchronous: an epoch starts. `kept`: from what is held.
  void startEpoch(bool kept, const PushTickets::Start& start);
  // The epoch computes from now on.
  void begin(TimePoint now);

  void tell(v1::View& view) const;
  void tell(v1::JobProgress& progress) const;
  void measure(v1::Measurements& measured) const;

 private:
  struct Pending {
    std::int64_t version = 0;
    TimePoint since{};
    std::string base;  // manifest of the newest one; "": it is to be whole
  };
  // Which samples had been pushed when a version was taken. Others may be pushed before its commit.
  struct SampleMark {
    std::int64_t position = 0;
    std::vector<SampleRange> unread;
  };
  void ask(const JobSteps& steps, const Progress& progress, TimePoint now, Outbox& out);
  bool mayBeDelta(TimePoint now) const;
  bool missed(const Membership& membership, const Epochs& epochs) const;
  bool captured(const Membership& membership, const Epochs& epochs) const;
  Failure failed(std::int64_t version, const std::string& why, const Epochs& epochs,
                 const JobSteps& steps, Outbox& out);

  const std::string job_uid_;
  const Duration every_;
  const std::optional<Duration> full_every_;
  std::optional<Manifest> newest_;
  UnixMillis newest_unix_ms_ = 0;
  std::optional<TimePoint> whole_since_;  // the newest whole one that this process has committed
  std::optional<Pending> pending_;        // asked for
  TimePoint next_;
  Duration lead_ = std::chrono::milliseconds(300);
  std::int64_t captured_ = -1;  // asynchronous: the newest version that all servers have copied
  std::map<std::int64_t, SampleMark> marks_;  // by version
  std::int64_t committing_ = -1;              // version
  TimePoint committing_since_{};
  std::int64_t unwritable_ = -1;  // of this epoch's versions: is not tried again
  bool failed_ = false;           // said once
  BucketCounts times_{metric("trainyard_checkpoint_duration_seconds").buckets};
};

}  // namespace trainyard::runtime
