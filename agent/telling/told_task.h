// What the processes of a task have told of themselves, as one: others know tasks only.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "agent/telling/examples_rate.h"
#include "agent/telling/telling.h"
#include "base/core/clock.h"
#include "trainyard/v1/agent.pb.h"

namespace trainyard::agent {

// Pure: time by argument. Not thread-safe.
class ToldTask {
 public:
  explicit ToldTask(std::uint32_t processes) : processes_(processes) {}

  // The program begins anew and has told nothing yet.
  void restart();
  // What process `process` has said; members that it leaves out stay as they were. A count that
  // falls has started anew, as one does that is kept for each pass.
  void take(std::uint32_t process, const Telling& said, TimePoint now);
  // Fills `told`, `examples` and `completed_steps`; nothing before the first telling. The step is
  // the least that a process tells, examples and their rate add up, the rest is what the first of
  // those says that tell it.
  void fill(TimePoint now, v1::RuntimeReport* report) const;

 private:
  // A count as it was last told, and how far it has come in all.
  struct Count {
    std::optional<std::uint64_t> last;
    std::uint64_t sum = 0;
    void add(std::uint64_t value, std::uint64_t first);
  };
  struct Process {
    Telling newest;
    std::int64_t accuracy_step = 0;
    Count steps, examples;
    ExamplesRate rate;
  };

  std::vector<Process> processes_;
  bool any_ = false;
};

}  // namespace trainyard::agent
