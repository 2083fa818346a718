#include "runtime/catalog/memory.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/core/units.h"
#include "fmt/format.h"
#include "runtime/catalog/catalog.h"

namespace trainyard::runtime {
namespace {

constexpr std::int64_t kFloat = 4;
// The pools remember for each window which of its elements won.
constexpr std::int64_t kWinner = 4;

// Walks through the layers; sizes are those of one sample.
class Walk {
 public:
  explicit Walk(const std::array<int, 3>& shape) : height_(shape[0]), width_(shape[1]) {
    last_ = values(shape[2]);
    kept_ = last_ * kFloat;
  }

  void layer(std::int64_t outputs) { output(outputs, 0); }
  // dlrm's: the vectors, which have gradients of their own, and their products.
  void interaction(std::int64_t vectors, std::int64_t outputs) {
    kept_ += (2 * vectors + outputs) * kFloat;
    last_ = outputs;
  }
  void convolution(std::int64_t channels) { output(values(channels), 0); }
  // mnist_cnn's: what the convolution itself puts out is not kept.
  void pooledConvolution(std::int64_t channels) {
    widest_ = std::max(widest_, (last_ + values(channels)) * kFloat);
    height_ = (height_ + 1) / 2;
    width_ = (width_ + 1) / 2;
    output(values(channels), kWinner);
  }
  void pool(std::int64_t channels) {
    height_ /= 2;
    width_ /= 2;
    output(values(channels), kWinner);
  }

  ActivationBytes result() const { return {kept_ + widest_, widest_}; }

 private:
  std::int64_t values(std::int64_t channels) const { return height_ * width_ * channels; }
  void output(std::int64_t size, std::int64_t extra) {
    kept_ += size * (kFloat + extra);
    widest_ = std::max(widest_, (last_ + size) * kFloat + size * extra);
    last_ = size;
  }

  std::int64_t height_;
  std::int64_t width_;
  std::int64_t last_ = 0;  // values of the newest output
  std::int64_t kept_ = 0;
  std::int64_t widest_ = 0;
};

std::vector<Variable> kernelsOf(const std::vector<Variable>& variables) {
  std::vector<Variable> kernels;
  std::copy_if(variables.begin(), variables.end(), std::back_inserter(kernels),
               [](const Variable& v) { return v.trainable && v.shape.size() > 1; });
  return kernels;
}

void walkVgg19(const std::vector<Variable>& kernels, Walk& walk) {
  constexpr std::size_t kBlock = 4;  // conv<block>_<layer>
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const std::vector<std::int64_t>& shape = kernels[i].shape;
    if (shape.size() != 4) {
      walk.layer(shape.back());
      continue;
    }
    walk.convolution(shape.back());
    if (kernels[i].name[kBlock] != kernels[i + 1].name[kBlock]) walk.pool(shape.back());
  }
}

// `shape`: [features, numbers, dim].
ActivationBytes ofDlrm(const v1::ModelSpec& spec, const std::vector<Variable>& kernels,
                       const std::array<int, 3>& shape) {
  const auto bottom = static_cast<std::size_t>(spec.bottom_hidden_size());
  Walk walk({1, 1, shape[1]});
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    if (i == bottom) {
      walk.interaction((1 + std::int64_t{shape[0]}) * shape[2], kernels[i].shape.front());
    }
    walk.layer(kernels[i].shape.back());
  }
  return walk.result();
}

}  // namespace

std::int64_t trainableBytes(const std::vector<Variable>& variables) {
  std::int64_t bytes = 0;
  for (const Variable& v : variables) bytes += v.trainable ? v.bytes() : 0;
  return bytes;
}

ActivationBytes activationBytes(const v1::ModelSpec& spec, const std::vector<Variable>& variables,
                                const std::array<int, 3>& shape) {
  const std::string& name = spec.name();
  if (name != "mnist_cnn" && name != "mlp" && name != "vgg19" && !isTabular(spec)) return {};
  const std::vector<Variable> kernels = kernelsOf(variables);
  if (name == "dlrm") return ofDlrm(spec, kernels, shape);
  Walk walk(isTabular(spec) ? std::array<int, 3>{1, 1, shape[2]} : shape);
  if (name == "vgg19") {
    walkVgg19(kernels, walk);
    return walk.result();
  }
  for (const Variable& kernel : kernels) {
    if (kernel.shape.size() == 4) {
      walk.pooledConvolution(kernel.shape.back());
    } else {
      walk.layer(kernel.shape.back());
    }
  }
  return walk.result();
}

void MemoryNeed::add(MemoryNeed other) {
  std::move(other.parts.begin(), other.parts.end(), std::back_inserter(parts));
}

std::int64_t MemoryNeed::bytes() const {
  std::int64_t sum = 0;
  for (const Part& part : parts) sum += part.bytes;
  return sum;
}

std::int64_t MemoryNeed::least() const {
  std::int64_t sum = 0;
  for (const Part& part : parts) sum += part.always ? part.bytes : 0;
  return sum;
}

std::string MemoryNeed::text() const {
  std::vector<std::string> lines;
  for (const Part& part : parts) {
    if (part.always)
      lines.push_back(
          fmt::format("{} {}", part.what, formatBytes(static_cast<double>(part.bytes))));
  }
  return fmt::format("{}", fmt::join(lines, ", "));
}

MemoryNeed workerMemory(const v1::ModelSpec& spec, const std::vector<Variable>& variables,
                        const std::array<int, 3>& shape, std::int64_t samples) {
  const std::int64_t weights = trainableBytes(variables);
  MemoryNeed need;
  need.parts.push_back({"weights", weights});
  if (spec.simulated_step_seconds() > 0) {
    std::int64_t largest = 0;
    for (const Variable& v : variables) largest = std::max(largest, v.trainable ? v.bytes() : 0);
    need.parts.push_back({"largest gradient", largest});
    return need;
  }
  need.parts.push_back({"gradients", weights});
  const std::int64_t activations = activationBytes(spec, variables, shape).training;
  if (activations > 0 && samples > 0) {
    need.parts.push_back(
        {fmt::format("activations of {} samples", samples), activations * samples});
  }
  return need;
}

MemoryNeed rowsMemory(const v1::Training& training, std::int64_t samples) {
  std::int64_t values = 0;  // of one sample
  for (const v1::TableSpec& table : training.tables())
    values += std::int64_t{table.dim()} * table.features_size();
  MemoryNeed need;
  if (values > 0 && samples > 0) {
    need.parts.push_back({fmt::format("rows of {} samples and their gradients", samples),
                          2 * values * samples * kFloat});
  }
  return need;
}

std::int64_t samplesPerWorker(const v1::JobSpec& spec) {
  const v1::Training& training = spec.training();
  if (!training.has_global_batch_size()) return training.batch_size();
  const std::int64_t workers = static_cast<std::int64_t>(std::max(1, spec.worker().replicas())) *
                               std::max(1, spec.worker().processes_per_pod());
  return (training.global_batch_size() + workers - 1) / workers;
}

MemoryNeed rankMemory(std::int64_t weights, int slots, bool writes) {
  MemoryNeed need;
  if (slots > 0) need.parts.push_back({"slots of the optimizer", slots * weights});
  if (writes) need.parts.push_back({"the copy for a checkpoint", (1 + slots) * weights});
  return need;
}

MemoryNeed replicaMemory(std::int64_t weights, int slots) {
  MemoryNeed need;
  if (weights > 0) need.parts.push_back({"replicas", (2 + slots) * weights});
  return need;
}

bool keepsReplicas(const v1::JobSpec& spec) {
  const v1::Training& training = spec.training();
  const std::string& mode = training.update().mode();
  if (mode.empty() || mode == "Sync") return training.chunk_replicas() != "Never";
  return training.chunk_replicas() == "Always";
}

std::vector<ServerLoad> serverLoads(const v1::JobSpec& spec,
                                    const std::vector<std::int64_t>& held) {
  const bool replicated = keepsReplicas(spec);
  std::vector<ServerLoad> loads;
  for (std::size_t i = 0; i < held.size(); ++i) {
    const bool keeps = replicated && held.size() > 1;
    loads.push_back({held[i], replicated, keeps ? held[(i + held.size() - 1) % held.size()] : 0});
  }
  return loads;
}

MemoryNeed serverMemory(const ServerLoad& load, int slots) {
  MemoryNeed need;
  need.parts.push_back({"two versions of the weights", 2 * load.held});
  if (slots > 0) need.parts.push_back({"slots of the optimizer", slots * load.held});
  if (load.replicated) need.parts.push_back({"gradients for replicas", load.held});
  need.add(replicaMemory(load.replicas, slots));
  // Where a step comes before they are written.
  if (slots > 0) {
    need.parts.push_back({"the slots' copy for a checkpoint", slots * load.held, /*always=*/false});
  }
  need.parts.push_back({"the weights of a checkpoint", load.held, /*always=*/false});
  return need;
}

}  // namespace trainyard::runtime
