// The variables of a declared model that are not trained, the chief's, beside the checkpoints:
// buffers.step-N.safetensors holds them as they were with the weights of that step.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/core/status.h"
#include "runtime/checkpoint/step_files.h"
#include "runtime/session/message.h"
#include "runtime/session/session_memory.h"

namespace trainyard::runtime {

// Of the session's thread, but for what keep() returns.
class DeclaredBuffers {
 public:
  // The values are those in `memory`, which must outlive it. `dir`, `kept`: the files' folder, and
  // how many are kept.
  DeclaredBuffers(const session::Declaration& declaration, const session::SessionMemory& memory,
                  const std::string& dir, int kept);

  bool any() const { return !numbers_.empty(); }
  bool has(std::int64_t step) const { return files_.has(step); }
  // Copies them, and returns what writes the file of that step, durably, and removes old ones.
  std::function<Status()> keep(std::int64_t version) const;
  // Puts the newest not after `version` in place, where there are any. DATA_LOSS names the file and
  // what is wrong with it.
  Status restore(std::int64_t version) const;

 private:
  const session::SessionMemory& memory_;
  const StepFiles files_;
  const int kept_;
  std::vector<std::size_t> numbers_;  // of the variables
  std::vector<session::DeclaredVariable> variables_;
};

}  // namespace trainyard::runtime
