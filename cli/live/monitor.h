// Turns what the tasks report into what the user sees: rates from counters, events from changes.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/clock.h"
#include "cli/live/snapshot.h"
#include "cli/live/summed_counter.h"
#include "cli/live/table_use.h"
#include "operator/cluster/cluster.h"
#include "trainyard/v1/agent.pb.h"

namespace trainyard::cli {

// What is known of the run at one moment.
struct RunView {
  control::JobObservation observed;
  std::map<control::TaskKey, v1::TaskState> tasks;  // newest word of each agent
  std::optional<v1::JobProgress> progress;          // newest word of the coordinator
};

// Nothing runs any more, of a job whose record says `state`.
bool hasEnded(std::string_view state);

// Rate of a counter over the last seconds.
class RateWindow {
 public:
  explicit RateWindow(Duration span) : span_(span) {}
  // A counter that fell has started anew.
  void add(TimePoint at, double value);
  // Nothing until there are two samples half a second apart.
  std::optional<double> perSecond() const;

 private:
  struct Sample {
    TimePoint at;
    double value;
  };
  Duration span_;
  std::deque<Sample> samples_;
};

// Pure: time by argument. Not thread-safe.
class RunMonitor {
 public:
  // `started` is when the run began.
  RunMonitor(std::string job, TimePoint started) : job_(std::move(job)), started_(started) {}

  void update(const RunView& view, TimePoint now, UnixMillis unix_ms);
  const RunSnapshot& snapshot() const { return snapshot_; }
  // What happened since the last call.
  std::vector<RunEvent> takeEvents();
  // Samples of all workers over the seconds in which they trained, evaluation excluded; over the
  // whole run. Nothing before the first step.
  std::optional<double> examplesPerSecond() const;

 private:
  struct TaskMemory {
    RateWindow examples_rate{std::chrono::seconds(5)};
    RateWindow received_rate{std::chrono::seconds(3)};
    RateWindow transmitted_rate{std::chrono::seconds(3)};
    SummedCounter examples, seconds, received, transmitted, wire_received, wire_transmitted;
    bool has_wire = false;
    // Of a program of the user's own: the last look at which it computed, and for how long it has.
    std::optional<TimePoint> told_at;
    double told_seconds = 0;
    std::int32_t restarts = 0;              // as last told
    std::optional<TimePoint> restarted_at;  // of one that is not told yet
  };

  TaskRow updateTask(const control::TaskObservation* observed, const v1::TaskState* state,
                     const control::TaskKey& key, TimePoint now);
  void showTold(const v1::Told& told, TaskRow* row);
  static double toldSeconds(const v1::RuntimeReport& report, TimePoint now, TaskMemory& memory);
  void updateProgress(const v1::JobProgress& progress, TimePoint now, UnixMillis unix_ms);
  void tell(UnixMillis unix_ms, std::string kind, std::string message);
  void tellRestarts(const RunView& view, TimePoint now, UnixMillis unix_ms);

  const std::string job_;
  const TimePoint started_;
  RunSnapshot snapshot_;
  std::map<control::TaskKey, TaskMemory> memory_;
  TableTotals tables_;
  RateWindow step_rate_{std::chrono::seconds(20)};
  std::vector<RunEvent> events_;
  std::string told_waiting_;
  std::string told_state_;
  bool told_resumed_ = false;
  std::int64_t told_accuracy_step_ = -1;
  std::int64_t told_lost_ = 0;
};

}  // namespace trainyard::cli
