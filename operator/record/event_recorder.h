// Events of jobs, kept few: an operator in a loop must not flood the record.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>

#include "base/core/clock.h"
#include "operator/cluster/cluster.h"

namespace trainyard::control {

struct EventLimits {
  // Of events with the same job, type and reason: so many per window are recorded as they are. The
  // first one after the window tells how many were left out.
  int similar_max = 10;
  Duration window = std::chrono::minutes(10);
  // Of all events of one job: a bucket of so many, refilled by one per interval.
  int burst = 25;
  Duration refill = std::chrono::minutes(5);
  std::size_t jobs_max = 4096;  // remembered at once; the longest silent one is forgotten first
};

// Thread-safe. `cluster` and `clock` outlive it.
class EventRecorder {
 public:
  EventRecorder(Cluster& cluster, const Clock& clock, EventLimits limits = {});

  // Records the event unless there were too many like it. An event that cannot be recorded is lost:
  // what matters is in the status. Blocks as long as Cluster::recordEvent.
  void record(const v1::TrainingJob& job, std::string_view type, std::string_view reason,
              std::string_view message);

  std::uint64_t dropped() const;

 private:
  struct Similar {
    TimePoint since;
    int count = 0;
    int left_out = 0;
  };
  struct JobEvents {
    TimePoint last;
    TimePoint refilled;
    int tokens = 0;
    std::map<std::pair<std::string, std::string>, Similar> similar;  // by (type, reason)
  };
  // Whether to record; adds to `message` what was left out before.
  bool admit(const std::string& job, std::string_view type, std::string_view reason,
             std::string* message);
  bool takeToken(JobEvents& events, TimePoint now);
  JobEvents& eventsOf(const std::string& job, TimePoint now);

  Cluster& cluster_;
  const Clock& clock_;
  const EventLimits limits_;
  mutable std::mutex mutex_;
  std::map<std::string, JobEvents> jobs_;
  std::uint64_t dropped_ = 0;
};

}  // namespace trainyard::control
