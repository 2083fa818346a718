// trainyard-runtime and trainyard-runtime-torch are the same program, linked without LibTorch and
// with it. Loading LibTorch costs half a second of processor time and 140 MB, which a parameter
// server and a worker that only pretends to compute have no use for: trainyard-runtime is what
// everybody starts, and where LibTorch is needed it becomes the other one.
#pragma once

#include "base/core/status.h"
#include "trainyard/v1/job.pb.h"
#include "trainyard/v1/membership.pb.h"

namespace trainyard::runtime {

// A TorchScript module is needed by everybody who knows its variables; anything else only by
// whoever computes it.
bool needsLibTorch(const v1::ModelSpec& model, v1::Role role);

// Goes on, in this process, as the program of the same arguments beside this one that is linked
// with LibTorch. Returns OK where this is it, and otherwise only when it fails: NOT_FOUND. Before
// any thread exists.
Status haveLibTorch(char** argv);

}  // namespace trainyard::runtime
