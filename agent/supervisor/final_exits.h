// Which ends of a task's program its agent takes for the last one, if it starts it again at all.
#pragma once

#include "base/core/exit_code.h"
#include "base/core/exit_code_set.h"
#include "base/process/child_process.h"

namespace trainyard::agent {

struct FinalExits {
  bool foreign = false;   // a program of the user's own
  ExitCodeSet more = {};  // besides: what the job has rules of its own for
  bool operator()(const ExitState& exit) const {
    if (more.has(shellExitCode(exit.code, exit.signal))) return true;
    return exit.signal == 0 &&
           (foreign ? isPermanentForeignExit(exit.code) : isPermanentExit(exit.code));
  }
};

}  // namespace trainyard::agent
