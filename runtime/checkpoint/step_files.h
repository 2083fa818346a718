// Files beside the checkpoints, one for a step: what goes with the weights of that step and is in
// no shard.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace trainyard::runtime {

class StepFiles {
 public:
  // Called `prefix`N`suffix` in `dir`.
  StepFiles(std::string dir, std::string prefix, std::string suffix);

  const std::string& dir() const { return dir_; }
  std::string path(std::int64_t step) const;
  bool has(std::int64_t step) const;
  // The newest, not after `last` where one is given.
  std::optional<std::int64_t> newest(std::optional<std::int64_t> last = std::nullopt) const;
  // Removes all but the `keep` newest.
  void prune(int keep) const;

 private:
  std::map<std::int64_t, std::string> files() const;

  std::string dir_;
  std::string prefix_;
  std::string suffix_;
};

// Those of a model that a program has declared: its arrays that are in no shard, as safetensors.
StepFiles declaredBufferFiles(const std::string& dir);

// How many are kept of a job that keeps `checkpoints`: those of one in the making, and of one that
// never became whole, are beyond them.
inline int keptFiles(int checkpoints) {
  return checkpoints + 2;
}

}  // namespace trainyard::runtime
