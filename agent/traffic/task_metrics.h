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

namespace trainyard::agent {

// Numbers that only grow within one process.
struct RuntimeCounters {
  struct Traffic {
    double received_bytes = 0;
    double transmitted_bytes = 0;
  };
  double examples = 0;
  double steps = 0;
  double requests = 0;
  std::map<std::string, double> phase_seconds;  // by phase name
  std::map<std::string, Traffic> traffic;       // by peer, "worker-0"
};

// Pure; not thread-safe.
class CounterTotals {
 public:
  // A report of the start-th life. Within one life a lower number than before changes nothing; a
  // higher `start` adds up; reports of an earlier life are ignored.
  void update(std::uint32_t start, const v1::RuntimeReport& report);
  // Over all lives.
  RuntimeCounters total() const;

 private:
  std::uint32_t start_ = 0;
  RuntimeCounters earlier_;  // sum over ended lives
  RuntimeCounters current_;
};

// The families of one task. Thread-safe.
class TaskMetrics : public prometheus::Collectable {
 public:
  // `wire` is asked for the bytes on the wire of a ps, from any thread; empty: nobody counts them.
  explicit TaskMetrics(TaskIdentity self, std::function<std::optional<WireBytes>()> wire = {})
      : self_(std::move(self)), wire_(std::move(wire)) {}

  void onReport(const v1::RuntimeReport& report);
  // `starts`: of the program so far. Not running: nothing is ready.
  void onChild(std::uint32_t starts, bool running);
  void onMembership(std::int64_t revision);
  // Up to now, over all lives of the program.
  std::optional<WireBytes> wire() const { return wire_ ? wire_() : std::nullopt; }

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const TaskIdentity self_;
  const std::function<std::optional<WireBytes>()> wire_;
  mutable std::mutex mutex_;
  CounterTotals totals_;
  v1::RuntimeReport newest_;
  std::uint32_t starts_ = 0;
  bool running_ = false;
  std::int64_t revision_ = 0;
};

}  // namespace trainyard::agent
