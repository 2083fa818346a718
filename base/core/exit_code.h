// Exit codes of our programs. The agent and the planner read them: the permanent ones end a job,
// all others (and death by signal) count as a failure that a restart may mend.
#pragma once

namespace trainyard {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;   // may be mended by a restart
inline constexpr int kExitUsage = 2;     // wrong flags, invalid file
inline constexpr int kExitBadInput = 3;  // data, checkpoint or job that cannot train: permanent
inline constexpr int kExitDiverged = 4;  // NaN or infinity: permanent
inline constexpr int kExitInterrupted = 130;

inline constexpr bool isPermanentExit(int code) {
  return code == kExitUsage || code == kExitBadInput || code == kExitDiverged;
}

}  // namespace trainyard
