// What the tasks of a job need of memory, as far as their model tells it. Pure: no torch, no files.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/catalog/variable.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::runtime {

// Bytes per sample of what the layers of a built-in model hand on to each other.
struct ActivationBytes {
  std::int64_t training =
      0;  // all outputs, kept for the backward pass, and the gradient on its way
  std::int64_t evaluation = 0;  // the largest input and output of one layer
};
// `variables`: the model's, global_step allowed. Zeros for a model that is not in the catalogue.
ActivationBytes activationBytes(const v1::ModelSpec& spec, const std::vector<Variable>& variables,
                                const std::array<int, 3>& shape);

// Sums of what is known; what is not (libraries, buffers of the wire, the data set) is left out, so
// that a task which needs more than there is cannot run.
struct MemoryNeed {
  struct Part {
    std::string what;  // "activations of 32 samples"
    std::int64_t bytes = 0;
  };
  std::vector<Part> parts;

  std::int64_t bytes() const;
  // "weights 575 MB, gradients 575 MB, activations of 2 samples 219 MB"
  std::string text() const;
};

// A worker: weights, gradients, and the activations of `samples` samples (0: they are on a GPU).
// Simulated computing keeps one gradient, the largest, and no activations; of a TorchScript module
// they are not known.
MemoryNeed workerMemory(const v1::ModelSpec& spec, const std::vector<Variable>& variables,
                        const std::array<int, 3>& shape, std::int64_t samples);
// Samples that one worker computes at a time when all take part.
std::int64_t samplesPerWorker(const v1::JobSpec& spec);

// A parameter server that holds `held` bytes of the weights: two versions of them, `slots` arrays
// of the optimizer, and the copy of weights and slots that is held while a checkpoint is written.
MemoryNeed serverMemory(std::int64_t held, int slots);

}  // namespace trainyard::runtime
