// What training.initFrom gives a program's model to begin with: a safetensors file, as the Python
// package makes of a state_dict and `trainyard checkpoint export` of a checkpoint, or another run,
// of which only the buffers are read here: its weights are read by whoever reads checkpoints.
#pragma once

#include <string>

#include "base/core/status.h"
#include "runtime/session/message.h"
#include "runtime/session/session_memory.h"

namespace trainyard::runtime {

// Whether initFrom's `path` is a file with arrays, and no run.
bool isArrayFile(const std::string& path);

// Puts those variables of `declaration` in place that the file has to have: all, or those that are
// not trained. What is trained may be float32 or 16 bits there. Arrays named global_step or
// "variable/slot" are passed over. INVALID_ARGUMENT, permanent, names file and array: one that the
// model has not, one that is missing, another type or shape.
Status readInitialArrays(const std::string& path, const session::Declaration& declaration,
                         bool trained, const session::SessionMemory& memory);

// The same of the variables that are not trained, from whatever `init_from` is. Another run that
// has kept none, or is not there, is none to begin with: who reads its weights says so.
Status readInitialBuffers(const std::string& init_from, const session::Declaration& declaration,
                          const session::SessionMemory& memory);

}  // namespace trainyard::runtime
