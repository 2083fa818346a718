// The steps of a job: how many there are, how many samples each takes, where in the sample stream
// an epoch's steps read, and what all steps so far have read.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/coordinator/coordinator_config.h"
#include "runtime/coordinator/membership.h"
#include "runtime/coordinator/push_tickets.h"
#include "runtime/data/step_plan.h"
#include "trainyard/v1/coordinator.pb.h"

namespace trainyard::runtime {

// Not thread-safe. Workers, data and the length that the newest document wants are the
// membership's.
class JobSteps {
 public:
  // `newest`: the checkpoint that a job goes on from. Before the workers have told the size of
  // their data only that knows it.
  JobSteps(const CoordinatorConfig& config, const Membership& membership,
           const std::optional<Manifest>& newest);

  // The version that ends the job; 0: not known yet.
  std::int64_t count() const { return count_; }
  // The document is newer than the settings that this process was started with.
  std::int64_t wanted(const Membership& membership) const;
  // The job is to end elsewhere. `progress` is passed already and cannot be undone.
  bool endMoves(const Membership& membership, std::int64_t progress) const;
  // Of one worker's push, in the asynchronous modes.
  int pushSamples(const Membership& membership) const;
  std::int64_t stepSamples(const Membership& membership) const;
  // Where nothing is read any more; 0: the stream has no end.
  std::int64_t endPosition(const Membership& membership) const;
  // Of the newest epoch.
  const StepPlan& plan() const { return plan_; }

  // Some epoch has begun, under this coordinator or a former one.
  bool begun() const { return !records_.empty(); }
  // Of the newest epoch; begun() only.
  int ranks() const { return records_.back().ranks; }
  const std::vector<EpochRecord>& records() const { return records_; }
  // The steps of an epoch that began under a former coordinator.
  void adopt(const v1::EpochInfo& epoch);
  // Those so far come to nothing: the job goes on from this checkpoint, or from its beginning.
  void rollBack(const std::optional<Manifest>& newest);
  // Completes the announcement of an epoch, which says where it starts. `uneven`: some chunks have
  // taken its first step. `pushes`: in the asynchronous modes, as they start.
  void startEpoch(v1::EpochInfo& epoch, const Membership& membership, bool uneven,
                  const PushTickets* pushes);
  // The job was over before.
  void end(std::int64_t step) { count_ = step; }

 private:
  std::int64_t countFrom(std::int64_t step, std::int64_t position, std::int64_t samples,
                         const Membership& membership) const;
  void record(const v1::EpochInfo& epoch, int workers);
  void add(const EpochRecord& record);

  const std::int64_t steps_;
  const std::int64_t passes_;
  const int batch_size_;
  const int global_batch_size_;
  const int backup_workers_;
  const std::optional<TicketRules> rules_;
  std::int64_t count_ = 0;
  StepPlan plan_;
  std::vector<EpochRecord> records_;
};

}  // namespace trainyard::runtime
