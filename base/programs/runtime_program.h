// Which of two programs does a task's work: trainyard-runtime, which computes the built-in models
// by itself, or trainyard-runtime-torch beside it, the same program linked with LibTorch, for
// TorchScript modules and GPUs. Whoever starts the runtime asks here.
#pragma once

#include <string>
#include <vector>

#include "base/core/status.h"
#include "trainyard/v1/job.pb.h"
#include "trainyard/v1/membership.pb.h"

namespace trainyard {

enum class LibTorchNeed {
  kNone,
  kWhereGpu,  // training.device Auto: only where there are a GPU and the program to use it
  kAlways,
};

// A TorchScript module takes LibTorch in everybody who must know its variables, a GPU in the
// workers that compute on it. ROLE_UNSPECIFIED: an evaluation, which computes on the processor.
LibTorchNeed libTorchNeed(const v1::Training& training, v1::Role role);

// What the place has where the program is to run.
struct TorchPlace {
  bool has_program = false;
  bool has_gpu = false;
};

// Whether the program with LibTorch is the one to start there; where it is kAlways, also if there
// is none.
bool takesLibTorch(LibTorchNeed need, const TorchPlace& place);

// The field that asks for LibTorch, and who may have it: "spec.training.device: GPU needs ...", in
// one line. `where` says where the program is missing. Precondition: kAlways.
Status libTorchMissing(const v1::Training& training, const std::string& where);

// The program to start for the role, from the path of trainyard-runtime: that, or the one of the
// same folder with LibTorch. INVALID_ARGUMENT, as above: it is needed and not there. What the
// machine has is looked up: a GPU is one that NVIDIA's driver shows and CUDA_VISIBLE_DEVICES, of
// the value `visible` (null: not set), does not hide.
StatusOr<std::string> runtimeProgram(const std::string& runtime, const v1::Training& training,
                                     v1::Role role, const char* visible);

// "/bin/trainyard-runtime" -> "/bin/trainyard-runtime-torch"
std::string torchProgram(const std::string& runtime);

// Whether CUDA would see a GPU of this machine; `visible` as above.
bool hasGpu(const char* visible);

// Whether CUDA would see a GPU, from the names in /dev and the value of CUDA_VISIBLE_DEVICES.
bool showsGpu(const std::vector<std::string>& devices, const char* visible);

}  // namespace trainyard
