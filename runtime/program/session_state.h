// The state of a program as its job sees it: asked of the program while that waits for its next
// turn, kept beside the checkpoints as program-state.step-N.bin.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/core/status.h"
#include "runtime/checkpoint/step_files.h"
#include "runtime/session/serve.h"
#include "runtime/train/program_state.h"

namespace trainyard::runtime {

// Of the session's thread, but for what keep() returns.
class SessionState final : public ProgramState {
 public:
  // The files' folder, and how many are kept.
  SessionState(std::string dir, int kept);

  // Whom to ask; null: nobody waits.
  void setWaiting(session::WaitingProgram* program) { program_ = program; }
  // The program has taken a step.
  void setChanged() { initial_ = false; }
  // The session is at its end.
  const Status& failure() const { return failure_; }

  StatusOr<Saved> save(std::int64_t version) override;
  StatusOr<std::span<std::byte>> room(std::size_t bytes) override;
  StatusOr<std::span<std::byte>> read(std::int64_t version) override;
  Status load(std::int64_t version) override;
  bool initial() const override { return initial_; }

  // Asks for it, and returns what writes the file of that step, durably, and removes old ones.
  StatusOr<std::function<Status()>> keep(std::int64_t version);
  // The program goes on with the newest one not after `version`, where there is one.
  Status restore(std::int64_t version);
  bool has(std::int64_t step) const { return files_.has(step); }

 private:
  Status own(const Status& status);

  const StepFiles files_;
  const int kept_;
  session::WaitingProgram* program_ = nullptr;
  std::optional<session::StateMemory> room_;
  bool initial_ = true;
  Status failure_;
};

}  // namespace trainyard::runtime
