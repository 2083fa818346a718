// One line of the fault table: what happens to whom, and what is to come of it. The columns are
// explained in table.txt.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/core/status.h"

namespace trainyard {

struct FaultCell {
  std::string victim;
  std::string moment;
  std::string held;   // the task that stops at ...
  std::string place;  // "failpoint@from-to"
  std::string how;
  std::string outcome;
  std::string lost;
  std::string restarts;
  std::string digest;
  int line = 0;       // in the table's file
  bool ring = false;  // strategy AllReduce
  int ps = 2;
  std::string update;  // a mode in which workers do not wait for each other, or ""

  bool ofAgent() const { return victim.starts_with("agent/"); }
  bool ofLauncher() const { return victim == "launcher"; }
  std::string coordinator() const { return ring ? "worker-0" : "ps-0"; }
  // Whether it matters that there is one besides that of the start: one is being taken, or who dies
  // or freezes knows of them, or all do.
  bool wantsCheckpoint() const;
  // How long it waits for deadlines, compared with others: 0: for none, 1: until somebody silent
  // counts as dead, 2: for tasks that come back when all others have left, 3: for the end of one
  // that hangs.
  int waits() const;
  // The task that is hit, "" for the launcher.
  std::string task() const;
};

// The rows of the table; INVALID_ARGUMENT names the line that does not parse.
StatusOr<std::vector<FaultCell>> parseFaultTable(std::string_view text);

}  // namespace trainyard
