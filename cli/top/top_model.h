// From the pages of a job's tasks, read again and again, to what `trainyard top` shows.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/core/clock.h"
#include "cli/live/monitor.h"
#include "cli/top/metrics_text.h"

namespace trainyard::cli {

// The last so many values of something, for a sparkline.
using History = std::deque<double>;
inline constexpr std::size_t kHistory = 120;

struct TopTask {
  std::string name;  // "worker-1"
  bool is_ps = false;
  bool reached = false;  // its agent answered
  bool ready = false;
  int restarts = 0;
  std::optional<double> step;
  std::optional<double> examples_per_second;
  std::optional<double> busy_per_step;  // seconds of reading and computing
  std::optional<double> slowdown;       // that against the median of the job's workers
  std::optional<double> waiting;        // part of its time that it waits for servers or workers
  // Of an all-reduce job: bytes that all-reduce sends, and the part of its time that is hidden
  // behind the worker's backward pass.
  std::optional<double> all_reduce_per_second;
  std::optional<double> hidden;
  std::optional<double> received_per_second;
  std::optional<double> transmitted_per_second;
  std::optional<double> share;  // ps: of the bytes of all
  // Of a server of embedding tables: rows that workers pull, and which part of them, since its
  // program started, goes to its busiest ids.
  std::optional<double> rows_per_second;
  std::optional<double> hot_rows;
  History history;  // ps: bytes per second; workers: examples per second
  double bytesPerSecond() const {
    return received_per_second.value_or(0) + transmitted_per_second.value_or(0);
  }
};

// What the workers of a job without parameter servers do together.
struct TopAllReduce {
  double sent_per_second = 0;    // by all workers
  std::optional<double> hidden;  // mean of the workers
  std::string slowest;           // who computes longest for a step; "": not known
  std::optional<double> slowdown;
};

struct TopJob {
  std::string name;
  std::string state;
  std::optional<double> step, steps;
  std::optional<double> examples_per_second;
  std::optional<double> loss, accuracy;
  std::optional<double> eta_seconds;
  std::optional<double> checkpoint_age_seconds;
  std::optional<double> lost_steps;
  std::optional<TopAllReduce> all_reduce;  // nothing with parameter servers
  std::optional<double> rows_per_second;   // that all servers' tables are pulled
  std::optional<double> hot_rows;          // of all that they were
  History throughput, losses;
  std::vector<TopTask> workers;  // those that hold up the others first
  std::vector<TopTask> servers;  // the busiest first
};

// Pure: time by argument. Not thread-safe.
class TopModel {
 public:
  explicit TopModel(std::string job) : job_(std::move(job)) {}
  // `tasks`: all that the job should have; those without a page did not answer.
  void update(const std::string& state, const std::vector<control::TaskKey>& tasks,
              const TaskPages& pages, TimePoint now, UnixMillis unix_ms);
  // Whether rates are known by now.
  bool hasRates() const { return updates_ > 1; }
  const TopJob& view() const { return view_; }

 private:
  // Rate of a counter between the last two looks; one that fell has started anew.
  struct Rate {
    std::optional<double> last;
    std::optional<double> update(std::optional<double> value, double seconds);
  };
  // Part of the time in all-reduce between the last two looks for which the worker did not wait.
  struct HiddenShare {
    std::optional<double> seconds, waited;
    std::optional<double> update(const TaskReading& reading);
  };
  struct Memory {
    Rate examples, steps, busy, wait, received, transmitted;
    Rate all_reduce_sent, rows;
    HiddenShare hidden;
    History history;
  };
  TopTask updateTask(const control::TaskKey& key, const std::string* page, double seconds);
  void updateAllReduce();
  void updateJob(double seconds, UnixMillis unix_ms, const TaskPages& pages);

  const std::string job_;
  std::map<control::TaskKey, Memory> memory_;
  Rate step_rate_;
  double steps_per_second_ = 0;  // smoothed, for the time left
  std::optional<TimePoint> last_;
  int updates_ = 0;
  TopJob view_;
};

}  // namespace trainyard::cli
