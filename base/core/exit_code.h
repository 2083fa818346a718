// Exit codes of tasks. The agent and the planner read them: the permanent ones end a job, all
// others (and death by signal) count as a failure that a restart may mend.
#pragma once

#include <string_view>

namespace trainyard {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;    // may be mended by a restart
inline constexpr int kExitUsage = 2;      // wrong flags, invalid file
inline constexpr int kExitBadInput = 3;   // data, checkpoint or job that cannot train: permanent
inline constexpr int kExitDiverged = 4;   // NaN or infinity: permanent
inline constexpr int kExitTableFull = 5;  // an embedding table has rows.max rows: permanent
// The same as reasons: what conditions say, and coordinators (JobProgress.failure_reason).
inline constexpr std::string_view kDiverged = "Diverged";
inline constexpr std::string_view kTableFull = "TableFull";
// Of an agent that could not do its part, such as listen at its port; a restart may mend it. Above
// all that a program of the user's own says by itself.
inline constexpr int kExitAgentFailure = 128;
inline constexpr int kExitInterrupted = 130;

// Of our runtime, which says what a restart cannot mend; code 1 may be a full disk or a lost
// network.
inline constexpr bool isPermanentExit(int code) {
  return code >= kExitUsage && code <= kExitTableFull;
}

// Of a program of the user's own: what it ends with by itself would come again, whatever the code
// means to its author. 128 and more are for ends that come from outside (128 + signal).
inline constexpr bool isPermanentForeignExit(int code) {
  return code > 0 && code < 128;
}

}  // namespace trainyard
