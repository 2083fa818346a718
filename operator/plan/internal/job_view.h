// A job's observation by index: for each task what is wanted, what is there and what is known of
// its past. Built anew for each plan; the planner works on the records in it and writes them back.
#pragma once

#include <cstdint>
#include <vector>

#include "base/core/clock.h"
#include "operator/cluster/cluster.h"
#include "operator/plan/planner.h"

namespace trainyard::control {

// The history of one index; see v1.TaskRecord.
struct TaskHistory {
  std::uint32_t created = 1;  // the life to be created next, or living
  std::int32_t restarts = 0;
  std::uint32_t in_place = 0;
  std::int32_t recent = 0;
  // When the next life may begin at the earliest; 0: at once. With `recent` 0 it is no back-off:
  // the former life leaves, and is deleted then if it has not ended.
  UnixMillis create_ms = 0;
};

struct TaskView {
  TaskKey key;
  bool desired = false;                    // wanted, as the spec's number and chooseWorkers say
  bool spared = false;                     // desired, but the others go on without it meanwhile
  bool finished = false;                   // a worker whose success is recorded: never run again
  const TaskObservation* seen = nullptr;   // any life of it
  const v1::MemberTask* member = nullptr;  // in the recorded membership
  bool listed = false;  // among the indices that existed when the status was written
  TaskHistory history;

  // The life that history.created names is there.
  bool current() const { return seen != nullptr && seen->created == history.created; }
  // ... and it is pending or running.
  bool lives() const;
  bool isReady() const { return lives() && seen->ready; }
  // Nothing is to be done about it. A ps that ended with success has done its part; the workers are
  // about to do so too.
  bool isWell() const {
    return finished || isReady() || (key.role == v1::ROLE_PS && hasEnded(TaskPhase::kSucceeded));
  }
  bool hasEnded(TaskPhase phase) const {
    return current() && !seen->terminating && seen->phase == phase;
  }
  // Takes part, or did until it was lost and is to come back; not one that was let go, nor a
  // newcomer that nobody has been told of.
  bool belongs() const {
    return finished || (member != nullptr && (memberKnows() || history.recent > 0));
  }
  bool hasAddress() const { return lives() && !seen->ip.empty() && seen->port != 0; }
  // The number history.created was given to a task before, so that another life needs a higher one.
  bool numberIsUsed() const { return current() || listed || memberKnows(); }
  // The recorded membership remembers the number history.created, whatever becomes of the task.
  bool memberKnows() const { return member != nullptr && member->created() >= history.created; }
  // The next life of this index has the next number, and no past of its own.
  void renumber() {
    history.created += 1;
    history.in_place = 0;
    listed = false;
  }
};

// Every index that is desired, observed, recorded or a member; sorted by key. Points into `input`.
// The number of a life that was observed but not recorded is adopted.
std::vector<TaskView> viewTasks(const PlannerInput& input);

// Writes the histories that could not be derived again into `status`.
void recordHistories(const std::vector<TaskView>& tasks, v1::JobStatus* status);

// Pending or running, and not on its way out.
bool isLive(const TaskObservation& task);

}  // namespace trainyard::control
