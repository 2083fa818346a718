#include "runtime/model/model.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <new>
#include <utility>

#include "base/core/check.h"
#include "base/core/sleep.h"
#include "fmt/format.h"
#include "runtime/catalog/catalog.h"
#include "runtime/catalog/memory.h"
#include "runtime/model/device_network.h"
#include "runtime/model/dlrm.h"
#include "runtime/model/internal/failed_pass.h"
#include "runtime/model/layer_specs.h"
#include "runtime/model/network.h"
#include "runtime/model/simulated.h"
#include "runtime/model/torchscript.h"
#include "runtime/model/wide_and_deep.h"

namespace trainyard::runtime {
namespace {

// Bounds on what an evaluation computes at a time: samples, and bytes of their activations.
constexpr int kMaxEvaluationChunk = 1000;
constexpr std::int64_t kEvaluationBytes = 256 << 20;

// A network under the catalogue's names: parameter i is variable i.
class NetworkModel : public Model {
 public:
  NetworkModel(std::vector<Variable> variables, std::unique_ptr<Network> network,
               const std::array<int, 3>& shape, int classes, int evaluation_chunk)
      : variables_(std::move(variables)),
        network_(std::move(network)),
        shape_(shape),
        classes_(classes),
        evaluation_chunk_(evaluation_chunk),
        by_rows_(variables_.size()) {}

  const std::vector<Variable>& variables() const override { return variables_; }

  std::span<float> weights(int variable) override {
    TY_CHECK(variable >= 0 && variable < static_cast<int>(variables_.size()),
             "callers number variables as variables() does");
    return network_->parameter(variable);
  }

  StatusOr<BatchLoss> forwardBackward(const Batch& batch, const GradientSink& sink) override {
    TY_RETURN_IF_ERROR(check(batch));
    try {
      const LossSum sum = network_->forwardBackward(
          slice(batch, 0, batch.size()),
          [&](int parameter, std::span<const float> values, std::shared_ptr<const void> owner,
              std::span<const std::int64_t> rows) {
            const bool by_rows = by_rows_[static_cast<std::size_t>(parameter)];
            sink({parameter, values, std::move(owner), rows, on_device_ && !by_rows});
          });
      return BatchLoss{sum.loss, batch.size(), sum.hits};
    } catch (const std::exception& failure) {
      return failedPass("training pass", batch.size(), failure);
    }
  }

  std::vector<int> deliverRows() override {
    std::vector<int> numbers = network_->deliverRows();
    for (const int number : numbers) by_rows_[static_cast<std::size_t>(number)] = true;
    return numbers;
  }
  bool deliverOnDevice(bool wanted) override {
    if (!network_->deliverOnDevice(wanted)) return false;
    on_device_ = wanted;
    return true;
  }

  void deliverIn(std::shared_ptr<std::pmr::memory_resource> memory) override {
    network_->deliverIn(std::move(memory));
  }

  StatusOr<BatchScore> evaluate(const Batch& batch) override {
    TY_RETURN_IF_ERROR(check(batch));
    BatchScore score;
    try {
      for (int first = 0; first < batch.size(); first += evaluation_chunk_) {
        const int count = std::min(evaluation_chunk_, batch.size() - first);
        const LossSum sum = network_->evaluate(slice(batch, first, count));
        score.hits += sum.hits;
        score.loss_sum += sum.loss;
        score.samples += count;
      }
    } catch (const std::exception& failure) {
      return failedPass("evaluation", batch.size(), failure);
    }
    return score;
  }

  Status canEvaluate() const override { return can_evaluate_; }
  void refuseEvaluation(Status why) { can_evaluate_ = std::move(why); }

  std::string saveState() override { return network_->saveState(); }
  Status loadState(const std::string& bytes) override {
    try {
      network_->loadState(bytes);
      return absl::OkStatus();
    } catch (const std::exception& failure) {
      return absl::InvalidArgumentError(failure.what());
    }
  }

 private:
  std::size_t valuesPerSample() const {
    return static_cast<std::size_t>(shape_[0]) * shape_[1] * shape_[2];
  }

  Status check(const Batch& batch) const {
    if (batch.shape != shape_) {
      return invalidInput("data", fmt::format("images of {}, the model was made for {}",
                                              fmt::join(batch.shape, "x"), fmt::join(shape_, "x")));
    }
    const std::size_t count = batch.labels.size();
    if (count == 0) return invalidInput("data", "a batch without samples");
    if (batch.images.size() != count * valuesPerSample() || batch.keys.size() != count) {
      return invalidInput(
          "data",
          fmt::format("a batch of {} labels has {} keys and {} pixel values, expected {}", count,
                      batch.keys.size(), batch.images.size(), count * valuesPerSample()));
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (batch.labels[i] < 0 || batch.labels[i] >= classes_) {
        return invalidInput("training.data.labels",
                            fmt::format("sample {} has class {}, expected 0 to {}", batch.keys[i],
                                        batch.labels[i], classes_ - 1));
      }
    }
    return absl::OkStatus();
  }

  Samples slice(const Batch& batch, int first, int count) const {
    Samples samples;
    samples.shape = shape_;
    samples.images = batch.images.data() + first * valuesPerSample();
    samples.labels = std::span(batch.labels).subspan(first, count);
    samples.keys = std::span(batch.keys).subspan(first, count);
    return samples;
  }

  std::vector<Variable> variables_;
  std::unique_ptr<Network> network_;
  std::array<int, 3> shape_;
  int classes_;
  int evaluation_chunk_;  // samples at a time
  // How gradients are delivered.
  std::vector<bool> by_rows_;
  bool on_device_ = false;
  Status can_evaluate_;
};

StatusOr<std::vector<Variable>> trainable(const v1::ModelSpec& spec,
                                          const std::array<int, 3>& shape, int classes) {
  TY_ASSIGN_OR_RETURN(std::vector<Variable> variables, catalogVariables(spec, shape, classes));
  std::erase_if(variables, [](const Variable& v) { return !v.trainable; });
  return variables;
}

Status noMemory(const v1::ModelSpec& spec) {
  return absl::ResourceExhaustedError(
      fmt::format("model {}: there is no memory for the weights", spec.name()));
}

StatusOr<std::unique_ptr<Model>> simulated(const v1::ModelSpec& spec,
                                           const std::array<int, 3>& shape, int classes) {
  if (isTabular(spec)) {
    return invalidInput("model.simulatedStepSeconds",
                        fmt::format("not with model {}", spec.name()));
  }
  TY_ASSIGN_OR_RETURN(std::vector<Variable> variables, trainable(spec, shape, classes));
  std::vector<GradientMoment> moments = backwardMoments(spec, variables, shape);
  StepTimer timer{fromSeconds(spec.simulated_step_seconds()), [] { return systemClock().now(); },
                  sleepUntil};
  try {
    return makeSimulatedModel(std::move(variables), std::move(moments), classes, std::move(timer));
  } catch (const std::bad_alloc&) {
    return noMemory(spec);
  }
}

StatusOr<std::unique_ptr<Model>> tabular(const v1::ModelSpec& spec, const std::array<int, 3>& shape,
                                         int classes, std::uint64_t seed, const std::string& device,
                                         std::vector<TableLookup> tables) {
  if (!device.empty()) {
    return invalidInput("training.device",
                        fmt::format("{} computes on the processor", spec.name()));
  }
  TY_ASSIGN_OR_RETURN(const std::vector<Variable> variables, trainable(spec, shape, classes));
  try {
    const auto make = spec.name() == "dlrm" ? makeDlrm : makeWideAndDeep;
    return make(spec, variables, std::move(tables), seed);
  } catch (const std::bad_alloc&) {
    return noMemory(spec);
  }
}

constexpr char kScript[] = "torchscript";

StatusOr<Script> readScript(const v1::ModelSpec& spec, std::uint64_t seed,
                            const std::string& device) {
  if (spec.path().empty()) return invalidInput("model.path", "missing: torchscript needs it");
  if (::access(spec.path().c_str(), R_OK) != 0) {
    return withClass(errnoStatus(errno, fmt::format("model.path: {}", spec.path())),
                     FailureClass::kPermanent);
  }
  StatusOr<Script> script = loadScript(spec.path(), seed, device);
  if (!script.ok()) return annotate(script.status(), "model.path");
  return script;
}

Variable variableOf(const ScriptParameter& parameter) {
  Variable variable;
  variable.name = parameter.name;
  variable.shape = parameter.shape;
  return variable;
}

StatusOr<std::unique_ptr<Model>> scripted(const v1::ModelSpec& spec,
                                          const std::array<int, 3>& shape, int classes,
                                          std::uint64_t seed, const std::string& device) {
  TY_ASSIGN_OR_RETURN(Script script, readScript(spec, seed, device));
  std::vector<Variable> variables;
  for (const ScriptParameter& parameter : script.parameters)
    variables.push_back(variableOf(parameter));
  auto model = std::make_unique<NetworkModel>(std::move(variables), std::move(script.network),
                                              shape, classes, kMaxEvaluationChunk);
  if (!script.has_metrics) {
    model->refuseEvaluation(invalidInput(
        fmt::format("model.path: {}", spec.path()),
        "no method metrics(batch: Dict[str, Tensor]) -> Dict[str, Tensor], which evaluation data "
        "needs"));
  }
  return model;
}

}  // namespace

StatusOr<ModelLayout> modelLayout(const v1::ModelSpec& spec, const std::array<int, 3>& shape,
                                  int classes) {
  ModelLayout layout;
  if (spec.name() != kScript) {
    TY_ASSIGN_OR_RETURN(layout.variables, catalogVariables(spec, shape, classes));
    layout.values.resize(layout.variables.size());
    return layout;
  }
  TY_ASSIGN_OR_RETURN(const Script script, readScript(spec, 0, ""));
  layout.variables.push_back(globalStep());
  layout.values.emplace_back();
  for (std::size_t i = 0; i < script.parameters.size(); ++i) {
    layout.variables.push_back(variableOf(script.parameters[i]));
    const auto values = script.network->parameter(static_cast<int>(i));
    layout.values.emplace_back(values.begin(), values.end());
  }
  return layout;
}

StatusOr<std::unique_ptr<Model>> makeModel(const v1::ModelSpec& spec,
                                           const std::array<int, 3>& shape, int classes,
                                           std::uint64_t seed, const std::string& device,
                                           std::vector<TableLookup> tables) {
  if (spec.simulated_step_seconds() > 0) return simulated(spec, shape, classes);
  if (spec.name() == kScript) return scripted(spec, shape, classes, seed, device);
  if (!(spec.dropout() >= 0 && spec.dropout() < 1)) {
    return invalidInput("model.dropout", fmt::format("{} is not in [0, 1)", spec.dropout()));
  }
  if (isTabular(spec)) return tabular(spec, shape, classes, seed, device, std::move(tables));
  TY_ASSIGN_OR_RETURN(std::vector<Variable> variables, trainable(spec, shape, classes));
  std::vector<std::vector<std::int64_t>> shapes;
  for (const Variable& v : variables) shapes.push_back(v.shape);
  const std::vector<LayerSpec> layers = layersOf(spec, variables);
  try {
    std::unique_ptr<Network> network = device.empty()
                                           ? makeNetwork(shapes, layers, seed)
                                           : makeDeviceNetwork(shapes, layers, seed, device);
    const std::int64_t chunk =
        kEvaluationBytes /
        std::max<std::int64_t>(1, activationBytes(spec, variables, shape).evaluation);
    return std::make_unique<NetworkModel>(
        std::move(variables), std::move(network), shape, classes,
        static_cast<int>(std::clamp<std::int64_t>(chunk, 1, kMaxEvaluationChunk)));
  } catch (const std::bad_alloc&) {
    return noMemory(spec);
  } catch (const std::exception& failure) {
    return absl::InternalError(fmt::format("model {}: {}", spec.name(), failure.what()));
  }
}

}  // namespace trainyard::runtime
