// The state of whoever computes on its way through a group, from the source rank of an epoch to the
// ranks that receive its weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/core/status.h"
#include "runtime/ring/exchange.h"
#include "runtime/train/program_state.h"
#include "trainyard/v1/coordinator.pb.h"

namespace trainyard::runtime::ring {

// Of one thread. Both must outlive it.
class StateRelay {
 public:
  StateRelay(ProgramState& state, Exchange& exchange) : state_(state), exchange_(exchange) {}

  // The source rank, of an epoch that starts from a checkpoint, before pass().
  Status read(const v1::EpochInfo& epoch);
  // All ranks, when the weights are there. `missing`: this rank had not had them. Errors: the
  // group's, and failure().
  Status pass(const v1::EpochInfo& epoch, int rank, bool missing);
  // Whoever computes here has failed.
  const Status& failure() const { return failure_; }

 private:
  Status give(const v1::EpochInfo& epoch);
  Status take(const v1::EpochInfo& epoch, bool receives);
  Status own(const Status& status);

  ProgramState& state_;
  Exchange& exchange_;
  bool restored_ = false;
  std::span<std::byte> room_;  // what was read
  std::vector<std::byte> piece_;
  Status failure_;
};

}  // namespace trainyard::runtime::ring
