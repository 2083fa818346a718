// What the tasks of a job need of memory, as far as their model tells it. Pure: no torch, no files.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/catalog/variable.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::runtime {

std::int64_t trainableBytes(const std::vector<Variable>& variables);

// Bytes per sample of what the layers of a built-in model hand on to each other.
struct ActivationBytes {
  std::int64_t training =
      0;  // all outputs, kept for the backward pass, and the gradient on its way
  std::int64_t evaluation = 0;  // the largest input and output of one layer
};
// `variables`: the model's, global_step allowed. Zeros for a model that is not in the catalogue.
ActivationBytes activationBytes(const v1::ModelSpec& spec, const std::vector<Variable>& variables,
                                const std::array<int, 3>& shape);

// Sums of what is known; what is not (libraries, buffers of the wire, the data set) is left out.
struct MemoryNeed {
  struct Part {
    std::string what;  // "activations of 32 samples"
    std::int64_t bytes = 0;
    bool always = true;  // every run comes to need it; else: where steps go on beside something
  };
  std::vector<Part> parts;

  void add(MemoryNeed other);
  // At the peak.
  std::int64_t bytes() const;
  // A task that has less cannot run.
  std::int64_t least() const;
  // Of least(): "weights 575 MB, gradients 575 MB, activations of 2 samples 219 MB"
  std::string text() const;
};

// A worker: weights, gradients, and the activations of `samples` samples (0: they are on a GPU).
// Simulated computing keeps one gradient, the largest, and no activations; of a TorchScript module
// they are not known.
MemoryNeed workerMemory(const v1::ModelSpec& spec, const std::vector<Variable>& variables,
                        const std::array<int, 3>& shape, std::int64_t samples);
// What a worker has beside where the job has tables: the rows of `samples` samples and their
// gradients. A sample counts as one id of each feature; how many a column of kind Ids has is not
// known.
MemoryNeed rowsMemory(const v1::Training& training, std::int64_t samples);
// Samples that one worker computes at a time when all take part.
std::int64_t samplesPerWorker(const v1::JobSpec& spec);

// What a worker of an all-reduce has beside: the optimizer's `slots` arrays for `weights` bytes,
// and where it `writes` the checkpoints the copy of all that is in one.
MemoryNeed rankMemory(std::int64_t weights, int slots, bool writes);
// Replicas of another server's chunks, `weights` bytes: two versions and the optimizer's slots.
MemoryNeed replicaMemory(std::int64_t weights, int slots);

// Whether a second copy of each chunk, and of all rows, is kept (see training.chunkReplicas): on
// the next server, an only server's on the first worker.
bool keepsReplicas(const v1::JobSpec& spec);

// A parameter server's part of the weights, in bytes.
struct ServerLoad {
  std::int64_t held = 0;
  bool replicated = false;    // what it holds has replicas elsewhere
  std::int64_t replicas = 0;  // of what another one holds
};
// Of all servers; `held` by server.
std::vector<ServerLoad> serverLoads(const v1::JobSpec& spec, const std::vector<std::int64_t>& held);
// Two versions of the weights, `slots` arrays of the optimizer, the mean gradients that are on
// their way to replicas, replicas; and for a checkpoint a copy of the slots, and the weights of its
// version where steps go on while it is written.
MemoryNeed serverMemory(const ServerLoad& load, int slots);

}  // namespace trainyard::runtime
