// Conditions in the manner of metav1.Condition: the transition time moves only with the status;
// reason and message follow without touching it. docs/conditions.md lists every triple that is ever
// set.
#pragma once

#include <string_view>

#include "base/core/clock.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::control {

inline constexpr std::string_view kCreated = "Created";
inline constexpr std::string_view kRunning = "Running";
inline constexpr std::string_view kResizing = "Resizing";
inline constexpr std::string_view kRestarting = "Restarting";
inline constexpr std::string_view kSuspended = "Suspended";
inline constexpr std::string_view kSucceeded = "Succeeded";
inline constexpr std::string_view kFailed = "Failed";
inline constexpr std::string_view kStalled = "Stalled";
inline constexpr std::string_view kReconciling = "Reconciling";
inline constexpr std::string_view kCheckpointDurable = "CheckpointDurable";
inline constexpr std::string_view kAgentsReachable = "AgentsReachable";
inline constexpr std::string_view kQuotaLimited = "QuotaLimited";

// Reasons of more than one place: why a job goes on though not everybody is there.
inline constexpr std::string_view kWorkersMissing = "WorkersMissing";
inline constexpr std::string_view kServersMissing = "ServersMissing";

inline constexpr std::string_view kTrue = "True";
inline constexpr std::string_view kFalse = "False";
inline constexpr std::string_view kUnknown = "Unknown";

// Null when the condition was never set.
const v1::Condition* findCondition(const v1::JobStatus& status, std::string_view type);
bool hasStatus(const v1::JobStatus& status, std::string_view type, std::string_view value);
// When it took its present status; 0 when it was never set.
UnixMillis transitionTime(const v1::JobStatus& status, std::string_view type);

struct ConditionChange {
  std::string_view type, status, reason;
  std::string_view message;
};
// Sets the condition as of `now`; true when its status changed (or it is new). observedGeneration
// of the condition becomes that of `status`.
bool setCondition(v1::JobStatus* status, UnixMillis now, const ConditionChange& change);

// Failed, Succeeded, Suspended, Restarting, Running: the first of these that is True; else Created.
std::string_view deriveState(const v1::JobStatus& status);

}  // namespace trainyard::control
