// What the program of a job trains, as a file beside the checkpoints. Worker-0 writes it when its
// program has declared its model and put the first weights in place; servers and the other workers
// wait for it, because they cannot know before what there is to place. From then on it is the
// job's: whoever is started again is held to it.
//
// A safetensors file: the trained variables with their first values, under the program's names; the
// declaration, of which they are a part, in its metadata.
#pragma once

#include <functional>
#include <string>

#include "base/core/status.h"
#include "runtime/session/message.h"
#include "runtime/session/session_memory.h"
#include "runtime/train/model_layout.h"

namespace trainyard::runtime {

struct DeclaredModel {
  session::Declaration declaration;
  // global_step, then the variables that are trained, in the declaration's order.
  ModelLayout layout;
};

// In the folder of a job's checkpoints.
std::string declaredModelPath(const std::string& checkpoint_dir);

// Whether a job can train it; INVALID_ARGUMENT names the variable. What cannot be declared at all
// the session has refused.
Status checkDeclared(const session::Declaration& declaration);

// Durably; the values are those in `memory`. Errors name the path.
Status writeDeclaredModel(const std::string& path, const session::Declaration& declaration,
                          const session::SessionMemory& memory);

// {"samples": ..., "variables": [{"name": "w", "shape": [2, 3], "type": "float32", "trained":
// true}, ...], ...}
std::string declarationJson(const session::Declaration& declaration);

// NOT_FOUND: there is none yet. DATA_LOSS names the path and what is wrong with the file.
StatusOr<DeclaredModel> readDeclaredModel(const std::string& path);
// Waits until there is one. CANCELLED: `cancelled`, which is asked some 20 times a second, says so.
StatusOr<DeclaredModel> awaitDeclaredModel(const std::string& path,
                                           const std::function<bool()>& cancelled);

}  // namespace trainyard::runtime
