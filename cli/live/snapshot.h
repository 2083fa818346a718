// What a run looks like at one moment: all that table, lines and JSON are made from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/core/clock.h"
#include "cli/live/table_use.h"

namespace trainyard::cli {

struct TaskRow {
  std::string name;  // "ps-0"
  bool is_ps = false;
  std::string state;  // starting | waiting | joining | restoring | training | serving | evaluating
                      // | running | stopping | done | ended | succeeded | failed | restarting
  std::optional<std::int64_t> step;
  std::optional<double> examples_per_second;     // workers
  std::optional<double> received_per_second;     // bytes; ps, all tasks of a foreign job
  std::optional<double> transmitted_per_second;  // the same
  std::uint64_t received_bytes = 0;              // in this run, over restarts
  std::uint64_t transmitted_bytes = 0;
  std::optional<std::uint64_t> wire_received_bytes;  // ps: the same as TCP carried it
  std::optional<std::uint64_t> wire_transmitted_bytes;
  std::uint32_t restarts = 0;
  std::string message;  // why it waits, in its own words
};

struct RunSnapshot {
  std::string job;
  std::string state;  // Created | Running | Restarting | Suspended | Succeeded | Failed
  // The tasks run programs of the user's own, of which processes and connections are known; steps,
  // loss and examples where they tell them.
  bool foreign = false;
  bool told = false;
  // Whether steps are counted.
  bool hasSteps() const { return !foreign || told; }
  std::int64_t step = 0;
  std::int64_t steps = 0;  // 0: not known yet
  std::optional<double> examples_per_second;
  std::optional<double> loss;
  std::optional<double> accuracy;
  std::int64_t accuracy_step = 0;
  std::optional<double> eta_seconds;
  double elapsed_seconds = 0;
  std::optional<std::int64_t> checkpoint_step;
  int restarts = 0;
  std::int64_t lost_steps = 0;
  int unguarded_parts = 0;  // of tables: on one server alone
  std::string waiting_for;  // "worker 1, ps 0"
  bool stopping = false;    // asked to stop by Ctrl-C
  std::vector<TaskRow> tasks;
  std::vector<TableUse> tables;  // embeddings; none: the job has none, or no task has reported

  // [0, 1]; 0 while the target is not known.
  double done() const {
    return steps > 0 ? static_cast<double>(step) / static_cast<double>(steps) : 0;
  }
};

// Something that happened, as the user is told it.
struct RunEvent {
  UnixMillis unix_ms = 0;
  std::string kind;     // restart | checkpoint | evaluation | resumed | waiting | warning | state
                        // | output
  std::string message;  // one line
};

}  // namespace trainyard::cli
