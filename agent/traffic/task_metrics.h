// What /metrics of a task shows: the newest report of its program, added to what earlier lives of
// the program counted, so that counters never fall.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "agent/membership/identity.h"
#include "agent/traffic/wire_meter.h"
#include "prometheus/collectable.h"
#include "prometheus/metric_family.h"
#include "trainyard/v1/agent.pb.h"
#include "trainyard/v1/measurements.pb.h"

namespace trainyard::agent {

// Numbers that only grow within one process.
struct RuntimeCounters {
  struct Traffic {
    double received_bytes = 0;
    double transmitted_bytes = 0;
  };
  // Counts by bucket, as in v1::Buckets.
  struct Histogram {
    std::vector<std::uint64_t> counts;
    double sum = 0;
  };
  // Of one collective operation.
  struct Collective {
    double sent_bytes = 0;
    double received_bytes = 0;
    double seconds = 0;
    double waited_seconds = 0;
  };
  // Of one embedding table: rows of a server, ids of a worker.
  struct Table {
    double created = 0;
    double refused = 0;
    double evicted = 0;
    double pulled = 0;
    double pushed = 0;
    double occurrences = 0;
    double distinct = 0;
  };
  double examples = 0;
  double steps = 0;
  double requests = 0;
  double discarded = 0;
  double lost_steps = 0;
  Histogram step_times;
  Histogram staleness;
  Histogram request_times;
  Histogram checkpoint_times;
  Histogram epoch_change_times;
  std::map<std::string, double> phase_seconds;   // by phase name
  std::map<std::string, Traffic> traffic;        // by peer, "worker-0"
  std::map<std::string, Collective> collective;  // by operation, "all_reduce"
  std::map<std::string, Table> tables;           // by name
};

// Pure; not thread-safe.
class CounterTotals {
 public:
  // A report of the start-th life. Within one life a lower number than before changes nothing; a
  // higher `start` adds up; reports of an earlier life are ignored.
  void update(std::uint32_t start, const v1::RuntimeReport& report);
  void update(std::uint32_t start, const v1::Measurements& measured);
  // Over all lives.
  RuntimeCounters total() const;

 private:
  // Whether the start-th life may be counted: it is the newest so far.
  bool enter(std::uint32_t start);

  std::uint32_t start_ = 0;
  RuntimeCounters earlier_;  // sum over ended lives
  RuntimeCounters current_;
};

// The families of one task; what its processes count is added up. Thread-safe.
class TaskMetrics : public prometheus::Collectable {
 public:
  // `wire` is asked for the bytes on the wire, from any thread; empty: nobody counts them.
  explicit TaskMetrics(TaskIdentity self, std::function<std::optional<WireReading>()> wire = {})
      : self_(std::move(self)), wire_(std::move(wire)), processes_(self_.processes) {}

  void onReport(const v1::RuntimeReport& report);
  void onMeasurements(const v1::Measurements& measured);
  // A program of the user's own has told what cannot be taken.
  void onRefusedTelling();
  // `starts`: of the program so far. Not running: nothing is ready.
  void onChild(std::uint32_t starts, bool running);
  void onMembership(std::int64_t revision);
  // Up to now, over all lives of the program.
  std::optional<WireReading> wire() const { return wire_ ? wire_() : std::nullopt; }

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  struct Process {
    CounterTotals totals;
    v1::RuntimeReport newest;
    std::int64_t checkpoint_bytes = 0;
  };
  // mutex_ is held.
  Process& processOf(const v1::TaskId& id);
  RuntimeCounters total() const;
  v1::RuntimeReport newest() const;

  const TaskIdentity self_;
  const std::function<std::optional<WireReading>()> wire_;
  mutable std::mutex mutex_;
  std::vector<Process> processes_;
  std::uint32_t starts_ = 0;
  bool running_ = false;
  std::int64_t revision_ = 0;
  std::uint64_t refused_tellings_ = 0;
};

}  // namespace trainyard::agent
