// Whether a task's part of the model fits into the memory that there is; asked before it is taken.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/core/status.h"
#include "runtime/catalog/variable.h"
#include "runtime/placement/placement.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::runtime {

// RESOURCE_EXHAUSTED in one line that names what needs how much, else OK; also where the system
// does not tell. Of a TorchScript module the size of its file stands for weights and gradients.
// Activations `on_gpu` are not in this memory.
Status checkWorkerMemory(const v1::TrainingJob& job, std::uint32_t index,
                         const std::array<int, 3>& shape, int classes, bool on_gpu);
// The same of a model that a program has declared, whose weights are in memory already, and whose
// own arrays and activations are not known; nor is its optimizer with `own_update`.
Status checkDeclaredMemory(const v1::TrainingJob& job, std::uint32_t index,
                           const std::vector<Variable>& variables, bool own_update);
Status checkServerMemory(const v1::JobSpec& spec, const Placement& placement, int ps, int slots);

}  // namespace trainyard::runtime
