// What the step loop asks of parameter servers, a ring, or nobody. A step s turns weights of
// version s (after s updates) into version s + 1.
#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string_view>

#include "base/core/status.h"
#include "runtime/train/gradient.h"
#include "runtime/train/row_exchange.h"
#include "runtime/train/turn.h"

namespace trainyard::runtime {

struct StepOutcome {
  bool complete = false;  // false: the gradient was not taken; ask next() again
  std::int64_t step = 0;  // the step taken; asynchronous: the number of this worker's push
  double loss = 0;        // mean over all workers' samples, when complete
  // Of the same samples, the share told right while they were trained on; where it is counted.
  std::optional<double> accuracy = {};
  // With clipping: of the mean gradient over all variables, before it was clipped.
  std::optional<double> gradient_norm = {};
  bool too_late = false;  // not complete: backup workers had made the step without it
};

// Used by one thread, the trainer's.
class Synchronizer {
 public:
  virtual ~Synchronizer() = default;
  // Waits for the next thing to do and puts the weights it needs into the model's spans (given at
  // construction). Errors: refused by the coordinator (INVALID_ARGUMENT names both sides), job
  // failed (FAILED_PRECONDITION with the job's reason).
  virtual StatusOr<Turn> next() = 0;
  // Whether gradients of the current turn may be handed over where the model's device has them.
  virtual bool wantsGradientsOnDevice() const { return false; }
  // Where gradients should be computed, so that they need not be copied; null: anywhere. May
  // outlive this.
  virtual std::shared_ptr<std::pmr::memory_resource> gradientMemory() const { return nullptr; }
  // Whether push() has read a gradient when it returns, so that its memory is the caller's again,
  // and has seen whether it is finite.
  virtual bool copiesGradients() const { return false; }
  // Hands over one variable's gradient of the current train turn; returns at once. False: it is not
  // finite, and stays here; only one in the host's memory, and where copiesGradients().
  virtual bool push(Gradient gradient) = 0;
  // After all pushes: waits until the step is complete and the next version has arrived.
  virtual StatusOr<StepOutcome> finish(const BatchLoss& loss) = 0;
  // True when the current turn's result will not be used any more (a new epoch, a stop): a long
  // evaluation may be cut short then.
  virtual bool interrupted() const = 0;
  // Result of a kEvaluate turn; ignored when interrupted.
  virtual void evaluated(const BatchScore& score) = 0;
  // Of the job's tables; null: it has none.
  virtual RowExchange* rowExchange() { return nullptr; }
  // This worker saw what must end the job (a loss not finite); finish() may wait for that end.
  virtual void abort(std::int64_t step, std::string_view variable, std::string_view reason) = 0;
};

}  // namespace trainyard::runtime
