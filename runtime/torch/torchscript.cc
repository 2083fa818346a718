#include "runtime/model/torchscript.h"

#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/script.h>

#include <cmath>
#include <map>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/core/log.h"
#include "base/core/rng.h"
#include "base/core/strings.h"
#include "fmt/format.h"
#include "runtime/model/libtorch.h"
#include "runtime/torch/internal/device_copies.h"
#include "runtime/torch/internal/row_parameters.h"
#include "runtime/torch/internal/sparse_gradient.h"

namespace trainyard::runtime {
namespace {

using torch::jit::IValue;

// LibTorch's messages go on with C++ stack traces.
std::string textOf(const std::exception& failure) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&failure);
  return torch_error != nullptr ? torch_error->what_without_backtrace() : failure.what();
}

std::string firstLine(const std::exception& failure) {
  const std::string text = textOf(failure);
  return std::string(splitFirst(text, '\n').first);
}

c10::TypePtr batchType() {
  return c10::DictType::create(c10::StringType::get(), c10::TensorType::get());
}

std::string shapeText(const at::Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.sizes(), ", "));
}

constexpr char kLoss[] = "loss(batch: Dict[str, Tensor]) -> Tensor";
constexpr char kMetrics[] = "metrics(batch: Dict[str, Tensor]) -> Dict[str, Tensor]";

// Whether the module has the method; an error when it looks otherwise than `signature`.
StatusOr<bool> hasMethod(const torch::jit::Module& module, const std::string& path,
                         const std::string& name, const std::string& signature,
                         const c10::TypePtr& result) {
  const auto method = module.find_method(name);
  if (!method) return false;
  const c10::FunctionSchema& schema = method->function().getSchema();
  const bool fits = schema.arguments().size() == 2 && schema.returns().size() == 1 &&
                    *schema.arguments()[1].type() == *batchType() &&
                    *schema.returns()[0].type() == *result;
  if (fits) return true;
  return invalidInput(path,
                      fmt::format("{} is {}, expected {}", name, c10::toString(schema), signature));
}

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

StatusOr<std::vector<NamedTensor>> trainedParameters(const torch::jit::Module& module,
                                                     const std::string& path) {
  std::vector<NamedTensor> result;
  std::map<const void*, std::string> owners;
  for (const auto& parameter : module.named_parameters()) {
    const at::Tensor& tensor = parameter.value;
    if (!tensor.requires_grad()) continue;
    if (tensor.scalar_type() != at::kFloat || !tensor.is_contiguous()) {
      return invalidInput(
          path, fmt::format("parameter {} is {}{}, expected contiguous float32", parameter.name,
                            tensor.is_contiguous() ? "" : "strided ",
                            c10::toString(tensor.scalar_type())));
    }
    const auto [owner, alone] =
        owners.emplace(tensor.storage().unsafeGetStorageImpl(), parameter.name);
    if (!alone) {
      return invalidInput(path,
                          fmt::format("parameters {} and {} share their memory, expected each "
                                      "parameter once",
                                      owner->second, parameter.name));
    }
    result.push_back({parameter.name, tensor});
  }
  if (result.empty()) {
    return invalidInput(path, "no parameter requires gradients: there is nothing to train");
  }
  return result;
}

class ScriptNetwork : public Network {
 public:
  // `device`: LibTorch's name, empty for the host's memory.
  ScriptNetwork(torch::jit::Module module, const std::vector<NamedTensor>& parameters,
                std::uint64_t seed, const std::string& device)
      : module_(std::move(module)),
        device_(device.empty() ? at::Device(at::kCPU) : at::Device(device)),
        seed_(seed) {
    // In place: the tensors of `parameters` are the module's still.
    if (!device.empty()) module_.to(device_);
    for (const NamedTensor& parameter : parameters) parameters_.push_back(parameter.tensor);
    by_rows_.resize(parameters_.size());
    if (!device.empty()) copies_.emplace(parameters_);
  }

  std::span<float> parameter(int number) override {
    if (copies_) return copies_->host(static_cast<std::size_t>(number));
    const at::Tensor& tensor = parameters_[static_cast<std::size_t>(number)];
    return {tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
  }

  LossSum forwardBackward(const Samples& samples, const ParameterGradientSink& sink) override {
    return plainErrors([&] {
      const c10::DeviceGuard here(device_);
      prepare(true);
      at::manual_seed(mixKey(seed_, static_cast<std::uint64_t>(samples.keys[0])));
      const at::Tensor loss = lossOf(batchOf(samples));
      const auto count = static_cast<double>(samples.count());
      const auto gradients = torch::autograd::grad({loss * count}, parameters_, {}, c10::nullopt,
                                                   /*create_graph=*/false, /*allow_unused=*/true);
      GradientCopies copies(device_, on_device_);
      for (std::size_t i = gradients.size(); i-- > 0;) {
        if (!by_rows_[i]) copies.add(static_cast<int>(i), whole(gradients[i], parameters_[i]));
      }
      copies.deliver(sink);
      for (std::size_t i = gradients.size(); i-- > 0;) {
        if (by_rows_[i]) deliverRowsOf(static_cast<int>(i), gradients[i], sink);
      }
      return LossSum{loss.item<double>() * count, 0};
    });
  }

  // What cannot be found out is delivered whole.
  std::vector<int> deliverRows() override {
    std::vector<int> numbers;
    try {
      numbers = rowParameters(module_, parameters_);
    } catch (const std::exception& failure) {
      TY_WARN("sparse gradients are sent whole: {}", firstLine(failure));
    }
    for (const int number : numbers) by_rows_[static_cast<std::size_t>(number)] = true;
    return numbers;
  }

  // Where the host writes the parameters themselves there is no device.
  bool deliverOnDevice(bool wanted) override {
    if (!copies_) return !wanted;
    on_device_ = wanted;
    return true;
  }

  LossSum evaluate(const Samples& samples) override {
    return plainErrors([&] {
      const c10::DeviceGuard here(device_);
      prepare(false);
      const torch::NoGradGuard no_gradients;
      const IValue batch = batchOf(samples);
      std::optional<double> accuracy;
      std::optional<double> loss;
      const IValue metrics = module_.get_method("metrics")({batch});
      for (const auto& entry : metrics.toGenericDict()) {
        const std::string& name = entry.key().toStringRef();
        if (name == "accuracy") accuracy = number(entry.value().toTensor(), "metrics: accuracy");
        if (name == "loss") loss = number(entry.value().toTensor(), "metrics: loss");
      }
      if (!accuracy) throw std::runtime_error("metrics(batch) gave no \"accuracy\"");
      if (!loss) loss = lossOf(batch).item<double>();
      const auto count = static_cast<double>(samples.count());
      return LossSum{*loss * count, std::llround(*accuracy * count)};
    });
  }

  // A dictionary of the buffers by name, as torch.load() reads it.
  std::string saveState() override {
    c10::Dict<std::string, at::Tensor> buffers;
    for (const auto& buffer : module_.named_buffers())
      buffers.insert(buffer.name, buffer.value.cpu());
    if (buffers.empty()) return {};
    const std::vector<char> bytes = torch::jit::pickle_save(buffers);
    return {bytes.begin(), bytes.end()};
  }

  void loadState(const std::string& bytes) override {
    plainErrors([&] {
      const IValue saved = torch::jit::pickle_load({bytes.begin(), bytes.end()});
      const torch::NoGradGuard no_gradients;
      std::map<std::string, at::Tensor> tensors;
      for (const auto& entry : saved.toGenericDict())
        tensors.emplace(entry.key().toStringRef(), entry.value().toTensor());
      for (const auto& buffer : module_.named_buffers()) {
        const auto found = tensors.find(buffer.name);
        if (found == tensors.end() || found->second.sizes() != buffer.value.sizes()) {
          throw std::runtime_error(
              fmt::format("buffer {} is {}, expected {}", buffer.name,
                          found == tensors.end() ? "missing" : shapeText(found->second),
                          shapeText(buffer.value)));
        }
        at::Tensor(buffer.value).copy_(found->second);
      }
    });
  }

 private:
  // What a user's module throws, without LibTorch's own stack.
  template <typename F>
  static auto plainErrors(F compute) -> decltype(compute()) {
    // The interpreter as it stands: the optimiser would change the order of computing, and so the
    // last bits, after the first passes.
    const torch::jit::GraphOptimizerEnabledGuard plain(false);
    try {
      return compute();
    } catch (const c10::Error& failure) {
      throw std::runtime_error(textOf(failure));
    }
  }

  void prepare(bool training) {
    // OpenMP keeps its number of threads per thread.
    at::init_num_threads();
    if (copies_) copies_->upload();
    if (training_ == training) return;
    module_.train(training);
    training_ = training;
  }

  IValue batchOf(const Samples& samples) const {
    const auto [height, width, channels] = samples.shape;
    // Copies, as a module may keep or change what it is given.
    const at::Tensor nhwc =
        toDevice(samples.images, {samples.count(), height, width, channels}, at::kFloat, device_);
    c10::Dict<std::string, at::Tensor> batch;
    batch.insert("images", nhwc.permute({0, 3, 1, 2}).contiguous());
    batch.insert("labels", toDevice(samples.labels.data(), {samples.count()}, at::kLong, device_));
    return batch;
  }

  static double number(const at::Tensor& tensor, const char* what) {
    return oneNumber(tensor, what).item<double>();
  }
  // Does not wait for the device.
  static at::Tensor oneNumber(const at::Tensor& tensor, const char* what) {
    if (tensor.numel() == 1) return tensor.reshape({});
    throw std::runtime_error(
        fmt::format("{} is a tensor of shape {}, expected one number", what, shapeText(tensor)));
  }

  at::Tensor lossOf(const IValue& batch) {
    return oneNumber(module_.get_method("loss")({batch}).toTensor(), "loss(batch)");
  }

  // A parameter that the loss does not depend on has no gradient; an embedding's may be sparse
  // rows.
  static at::Tensor whole(const at::Tensor& gradient, const at::Tensor& parameter) {
    if (!gradient.defined()) return at::zeros_like(parameter);
    return gradient.is_sparse() ? denseGradient(gradient) : gradient.contiguous();
  }

  static void deliverRowsOf(int number, const at::Tensor& gradient,
                            const ParameterGradientSink& sink) {
    const auto owner = std::make_shared<GradientRows>();
    if (gradient.defined()) *owner = gradientRows(gradient);
    sink(number, owner->values, owner, owner->rows);
  }

  torch::jit::Module module_;
  at::Device device_;
  std::vector<at::Tensor> parameters_;
  std::vector<bool> by_rows_;           // how their gradients are delivered
  std::optional<WeightCopies> copies_;  // none: the host writes the parameters themselves
  std::uint64_t seed_;
  std::optional<bool> training_;
  bool on_device_ = false;  // gradients are delivered there
};

StatusOr<Script> readScript(const std::string& path, std::uint64_t seed,
                            const std::string& device) {
  torch::jit::Module module = torch::jit::load(path, at::kCPU);
  Script script;
  TY_ASSIGN_OR_RETURN(const bool has_loss,
                      hasMethod(module, path, "loss", kLoss, c10::TensorType::get()));
  if (!has_loss) {
    return invalidInput(path, fmt::format("no method {} (a method of the module under "
                                          "@torch.jit.export)",
                                          kLoss));
  }
  TY_ASSIGN_OR_RETURN(script.has_metrics,
                      hasMethod(module, path, "metrics", kMetrics, batchType()));
  TY_ASSIGN_OR_RETURN(const std::vector<NamedTensor> parameters, trainedParameters(module, path));
  for (const NamedTensor& parameter : parameters)
    script.parameters.push_back({parameter.name, parameter.tensor.sizes().vec()});
  script.network = std::make_unique<ScriptNetwork>(std::move(module), parameters, seed, device);
  return script;
}

}  // namespace

StatusOr<Script> loadScript(const std::string& path, std::uint64_t seed,
                            const std::string& device) {
  try {
    return readScript(path, seed, device);
  } catch (const std::exception& failure) {
    return invalidInput(path, fmt::format("no TorchScript module that LibTorch {} reads: {}",
                                          torchVersion(), firstLine(failure)));
  }
}

}  // namespace trainyard::runtime
