// A job whose tasks are killed one after the other while it trains: how far it is, whether it has
// gone on since, and what was lost.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/multiproc/run_fixture.h"

namespace trainyard {

// A job of 3 workers that do not wait for each other, and whose pushes have replicas. Its gradients
// are constant (simulated computing): the weights tell how many updates there were.
std::string asynchronousJob(int ps, int steps, const std::string& update);
// Flags with which it comes to the same weights in common steps, at once.
std::vector<std::string> inCommonSteps();

// Steps that somebody completed more than once, of the worker with the most of them. (Not everybody
// has the newest version when somebody stops.)
std::int64_t repeatedSteps(const JobRun& run, int workers);

// Steps that at least so many workers completed more than once.
std::int64_t stepsTakenTwice(const JobRun& run, int workers, int holders);

struct Kill {
  std::string victim;     // a task's program, or agent/TASK
  std::string place;      // where it was: a failpoint, or in words
  std::int64_t step = 0;  // the one in progress, as far as the workers' records show
  std::int64_t epoch = 0;
  std::int64_t lost = 0;  // steps that were taken again afterwards
};
// killed worker-1 at worker.push (step 40, epoch 5): lost 0
std::string lineOf(const Kill& kill);

// Failpoint with which nobody is waited for longer because he has died before.
inline constexpr char kBackAtOnce[] = "agent.backoff=error;";

class KilledRun {
 public:
  KilledRun(const std::filesystem::path& dir, const std::string& yaml,
            const std::vector<std::string>& flags, int workers);

  // Strategy AllReduce: a step that one worker has taken, and no other yet, dies with it.
  void inRing() { holders_ = 2; }
  JobRun& job() { return job_; }
  const JobRun& job() const { return job_; }
  const std::vector<Kill>& kills() const { return kills_; }

  // What any worker recorded last; step -1: nothing yet.
  PositionRecord newest() const;
  // SIGKILL for the program or the agent. What is wrong with that, or "".
  std::string kill(const std::string& victim, const std::string& place);
  // Whether a step has been taken under a newer epoch than that of the last kill; true before the
  // first.
  bool recovered();
  // Whether the one killed last, if it was a worker, has himself taken a step under a newer epoch:
  // the others may have gone on without him. Of a server, recovered() says it.
  bool cameBack() const;
  // Waits for the job's end, which must be success with `digest`, no step lost, and no more
  // restarts than kills, up to `spare` less. What is not so, or "".
  std::string end(std::int64_t steps, const std::string& digest, int spare);

 private:
  PositionRecord lastOf(int worker) const;

  std::int64_t lostSteps() const { return stepsTakenTwice(job_, workers_, holders_); }

  const int workers_;
  int holders_ = 1;
  JobRun job_;
  std::vector<Kill> kills_;
  std::int64_t repeated_ = 0;  // until the last recovery
  std::size_t recovered_ = 0;  // kills that the job has recovered from
};

}  // namespace trainyard
