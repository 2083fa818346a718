// A job whose tasks stop at failpoints, one in each of their lives, and are killed there: by a
// plan, so that the moments are exact, but in the order in which they come.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/multiproc/faults/killed_run.h"

namespace trainyard {

struct Stroke {
  std::string victim;     // a task's program, or agent/TASK, killed when ...
  std::string point;      // the task's program comes to this failpoint
  std::int64_t from = 0;  // with this number or a higher one

  bool ofAgent() const { return victim.starts_with("agent/"); }
  // Whether it is where a life comes to once, when all steps are taken.
  bool atTheEnd() const;
  std::string task() const;
};

// Those of one task are for its lives in turn.
using Strokes = std::vector<Stroke>;

// Stops every life of a task at the failpoint that is next for it.
std::string failpointsOf(const Strokes& strokes);

class HeldRun {
 public:
  HeldRun(const std::filesystem::path& dir, const std::string& yaml,
          const std::vector<std::string>& flags, int workers, const Strokes& strokes);

  // All strokes, while steps are slow until they are due at the end, then the end of the job as
  // KilledRun::end() has it. What is not as it should be, or "".
  std::string run(const std::string& failpoints, std::int64_t steps, const std::string& digest,
                  int spare);
  void inRing() { run_.inRing(); }  // as of KilledRun
  const std::vector<Kill>& kills() const { return run_.kills(); }

 private:
  struct Held {
    std::string task;
    pid_t pid = 0;
  };
  // Somebody who stands at a failpoint, the task that died last before others.
  std::optional<Held> findHeld() const;
  // Whether one who has not died last may die now, by this stroke.
  bool mayDie(const Stroke& stroke);
  // Kills him, or lets him go on when the job has not got over the last kill: he will stop again.
  std::string meet(const Held& held);
  bool onlyTheEndIsLeft() const;
  std::string missing() const;

  KilledRun run_;
  std::map<std::string, Strokes> left_;  // by task, the next one last
  std::string last_task_;
};

}  // namespace trainyard
