// Which parameters of a TorchScript module have gradients of few rows. Only the .cc files of
// runtime/torch include it.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>

#include <vector>

namespace trainyard::runtime {

// Numbers of those of `parameters` (the module's own tensors) that loss() uses for nothing but
// look-ups of rows with sparse=True (torch.embedding, torch.embedding_bag), as its code says it:
// whatever a batch holds, autograd gives their gradients as sparse rows. In doubt a parameter is
// not among them: where it goes through a list or a branch, `sparse` is computed, or a part of
// the module is called through an interface or by fork().
std::vector<int> rowParameters(const torch::jit::Module& module,
                               const std::vector<at::Tensor>& parameters);

}  // namespace trainyard::runtime
