// Carries one cell of the fault table out on a job of its own, and says what came of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/multiproc/faults/cell.h"
#include "tests/multiproc/run_fixture.h"

namespace trainyard {

inline constexpr int kFaultSteps = 120;
// The job of the table, in all cells the same but for its strategy, which changes no bit of it, and
// for the cells of the modes in which workers do not wait for each other.
std::string faultJob(const FaultCell& cell);
std::vector<std::string> faultFlags(bool ring);

struct FaultResult {
  std::string outcome;
  std::int64_t first_step = 0;  // of the last epoch
  std::int64_t lost = 0;
  std::int64_t restarts = 0;
  bool digest_equal = false;
  double seconds = 0;
  std::string problem;  // empty: as the table says
};

class FaultRun {
 public:
  // `undisturbed`: the digest of the job without faults.
  FaultRun(const std::filesystem::path& dir, FaultCell cell, std::string undisturbed);
  FaultResult run();

 private:
  bool slow() const;
  std::string failpoints() const;
  // Each gives what is not as it should be, or "".
  std::string waitForCheckpoint();
  std::string strike();
  std::string kill(pid_t held);
  std::string wakeOnceDead(pid_t held);
  std::string nothingLeft();
  void readEnd(const ProgramEnd& end);
  std::string compare() const;
  std::string positionsProblem() const;

  const FaultCell cell_;
  const std::string undisturbed_;
  JobRun run_;
  std::vector<int> ports_;
  FaultResult result_;
};

}  // namespace trainyard
