// Carries out a plan through the Cluster interface.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>

#include "base/core/helper_pool.h"
#include "base/core/status.h"
#include "operator/cluster/cluster.h"
#include "operator/plan/planner.h"
#include "operator/record/event_recorder.h"

namespace trainyard::control {

struct Applied {
  Status status;                // the first failure
  bool status_written = false;  // the plan's status is the job's now, whatever failed after that
};

// Thread-safe, as `cluster` and `recorder` are, which outlive it: plans of several jobs can be
// carried out side by side.
class Applier {
 public:
  // `writes_at_once`, from 1: so many releases, deletes or creates of one job run side by side at
  // most; with 1 in the order of the plan.
  Applier(Cluster& cluster, EventRecorder& recorder, int writes_at_once = 1)
      : cluster_(cluster),
        recorder_(recorder),
        at_once_(static_cast<std::size_t>(writes_at_once)),
        helpers_(2 * (at_once_ - 1)) {}

  // Whether nothing more is begun for tasks, also of plans that are being carried out: they end as
  // soon as the calls under way do, with UNAVAILABLE.
  void holdBack(bool held) { held_back_ = held; }
  bool heldBack() const { return held_back_; }

  // In this order, so that it may stop or die after any write and the next plan goes on from there:
  //   0. the job's first membership, of which the status tells already
  //   1. the status: numbers and counts are recorded before anything follows from them
  //   2. events, which tell what the status now holds
  //   3. the membership, recorded before anyone is told
  //   4. the job's place in its queue
  //   5. releases, deletes and what is given up, each of exactly one life of a task, side by side;
  //      volume claims of tasks that are gone
  //   6. creates: one, then four at once, then sixteen, ... then as many as allowed, all the time
  //   7. the end of the job itself
  // A create that finds the task there and a delete that finds it gone are proofs, not failures.
  // Blocks as long as the writes take. A failure has its class:
  //   ABORTED              the record changed since it was observed: observe and plan again
  //   the cluster's code   otherwise; "maybe happened" is told by the next observation
  // After a failed status or membership nothing else is written. A failed delete does not hold back
  // the others; no creates are begun after the first that failed, so that a lack of quota costs few
  // calls.
  Applied apply(const JobObservation& observed, const Plan& plan);

 private:
  Status publish(const v1::TrainingJob& job, const v1::Membership& membership);
  Applied writeRecords(const v1::TrainingJob& job, const Plan& plan);
  Status tellQueue(const v1::TrainingJob& job, const QuotaStep& step);
  Status deleteTasks(const v1::TrainingJob& job, const Plan& plan);
  Status forgetTasks(const v1::TrainingJob& job, const Plan& plan);
  Status dropVolumeClaims(const v1::TrainingJob& job, const Plan& plan);
  Status releaseTasks(const v1::TrainingJob& job, const Plan& plan);
  Status createTasks(const v1::TrainingJob& job, const Plan& plan);
  Status createTask(const v1::TrainingJob& job, const CreateTask& task);
  enum class AfterFailure { kGoOn, kStop };
  // The first failure.
  Status eachTask(std::size_t count, std::size_t at_once, AfterFailure after,
                  const std::function<Status(std::size_t)>& act);

  Cluster& cluster_;
  EventRecorder& recorder_;
  const std::size_t at_once_;
  std::atomic<bool> held_back_ = false;
  // Two jobs at once can be served as if they were alone; each goes on by itself in any case.
  HelperPool helpers_;
};

}  // namespace trainyard::control
