// A model as the step loop sees it: variables in TensorFlow's layout, gradients as they become
// ready, both in the host's memory wherever it computes, unless gradients are asked for on the
// device. No torch types; only runtime/torch includes LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <vector>

#include "base/core/status.h"
#include "runtime/catalog/variable.h"
#include "runtime/data/dataset.h"
#include "runtime/data/table_lookup.h"
#include "runtime/train/gradient.h"
#include "runtime/train/model_layout.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::runtime {

// Called from within forwardBackward, on its thread, in the order of the backward pass.
using GradientSink = std::function<void(Gradient)>;

// Owned by one thread.
class Model {
 public:
  virtual ~Model() = default;
  // The trainable variables, in the catalogue's order (global_step is not among them).
  virtual const std::vector<Variable>& variables() const = 0;
  // The weights that the next call computes with; the caller writes them between calls.
  virtual std::span<float> weights(int variable) = 0;
  // One pass in training mode (dropout keyed by seed and batch.keys). Every variable's gradient is
  // delivered exactly once before it returns, and a variable's weights are not read after its
  // gradient was delivered (the next version may be written over them while the pass goes on).
  virtual StatusOr<BatchLoss> forwardBackward(const Batch& batch, const GradientSink& sink) = 0;
  // From now on gradients that are zero but for the rows that a batch looks up, as of an embedding,
  // are delivered by those rows. Of which variables: matrices by their first dimension, the same
  // ones in all processes with this model, whatever they compute on and whatever a batch holds.
  virtual std::vector<int> deliverRows() { return {}; }
  // Whether gradients of passes from now on are delivered on the device, all but those by rows; the
  // host's memory is where they go at first. False: this model cannot, and goes on as it was.
  virtual bool deliverOnDevice(bool wanted) { return !wanted; }
  // Gradients of passes from now on are computed in blocks of this memory, which their owners keep;
  // models that have memory of their own for them leave it alone. null: as it was.
  virtual void deliverIn(std::shared_ptr<std::pmr::memory_resource> /*memory*/) {}
  // With tables: what the newest forwardBackward() has found for batch.rows, laid out like them,
  // SUMS over the batch's samples; the caller's to move away.
  virtual std::vector<std::vector<float>> takeRowGradients() { return {}; }
  // Forward only, no dropout.
  virtual StatusOr<BatchScore> evaluate(const Batch& batch) = 0;
  // Why it cannot evaluate (a TorchScript module without metrics()); OK otherwise.
  virtual Status canEvaluate() const { return absl::OkStatus(); }
  // What training passes change beside the weights: the buffers of a TorchScript module, such as
  // running averages. Only evaluate() reads it. Bytes for loadState() of the same model, and for
  // torch.load(); empty: nothing.
  virtual std::string saveState() { return {}; }
  // INVALID_ARGUMENT when the bytes are not of such a model.
  virtual Status loadState(const std::string& bytes) {
    return bytes.empty() ? absl::OkStatus()
                         : absl::InvalidArgumentError("the model has no buffers");
  }
};

// INVALID_ARGUMENT as of catalogVariables(), or naming the file.
StatusOr<ModelLayout> modelLayout(const v1::ModelSpec& spec, const std::array<int, 3>& shape,
                                  int classes);

// INVALID_ARGUMENT when the data's shape or classes do not fit the model. Whether they fit a
// TorchScript module shows in its first pass. `device` (ComputeDevice::name): empty for the
// processor with kernels written for it, else what LibTorch calls it, for LibTorch's operators
// alone ("cuda:0"; "cpu" differs from empty by rounding). Simulated computing needs none.
// wide_and_deep and dlrm compute on the processor alone; their shape is impliedInput()'s, and they
// look up rows in `tables`, the job's.
StatusOr<std::unique_ptr<Model>> makeModel(const v1::ModelSpec& spec,
                                           const std::array<int, 3>& shape, int classes,
                                           std::uint64_t seed, const std::string& device = "",
                                           std::vector<TableLookup> tables = {});

// What computes: "oneDNN 2.6.3, OpenBLAS 0.3.21, 1 thread".
std::string mathLibraries();
// Whether this program is linked with LibTorch. Without it there are no models on a GPU, and
// nothing of a TorchScript module.
bool hasLibTorch();
// Threads one process computes with; before the first use of a model.
void setComputeThreads(int n);

}  // namespace trainyard::runtime
