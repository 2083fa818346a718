#include "runtime/catalog/catalog.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/core/units.h"
#include "fmt/format.h"
#include "runtime/catalog/data_columns.h"

namespace trainyard::runtime {
namespace {

constexpr std::int64_t kMaxElements = std::int64_t{1} << 36;

constexpr Initializer kTenth{Initializer::Kind::kConstant, 0.1f};
constexpr Initializer kZero{Initializer::Kind::kZeros, 0};

Initializer truncatedNormal(double deviation) {
  return {Initializer::Kind::kTruncatedNormal, static_cast<float>(deviation)};
}

// Collects variables; keeps the first one that is too large as the error.
class List {
 public:
  List() { variables_.push_back(globalStep()); }

  void layer(const std::string& name, std::vector<std::int64_t> kernel, Initializer weights,
             Initializer biases) {
    const std::int64_t outputs = kernel.back();
    add(name + "_wei", std::move(kernel), weights);
    add(name + "_bia", {outputs}, biases);
  }
  // With the deviations of dlrm's authors.
  void interactionLayer(const std::string& name, std::int64_t inputs, std::int64_t outputs) {
    layer(name, {inputs, outputs}, truncatedNormal(std::sqrt(2 / double(inputs + outputs))),
          truncatedNormal(std::sqrt(1 / double(outputs))));
  }
  void weights(const std::string& name, std::vector<std::int64_t> shape, Initializer weights) {
    add(name + "_wei", std::move(shape), weights);
  }

  StatusOr<std::vector<Variable>> take() {
    if (!status_.ok()) return status_;
    return std::move(variables_);
  }

 private:
  void add(std::string name, std::vector<std::int64_t> shape, Initializer initializer) {
    std::int64_t left = kMaxElements;
    for (const std::int64_t dimension : shape) left /= dimension;
    if (left == 0 && status_.ok()) {
      status_ = invalidInput("model", fmt::format("{} would have more than {} elements", name,
                                                  formatCount(kMaxElements)));
    }
    variables_.push_back({std::move(name), std::move(shape), DType::kFloat32, initializer, true});
  }

  std::vector<Variable> variables_;
  Status status_;
};

std::int64_t halfUp(std::int64_t n) {
  return (n + 1) / 2;
}

StatusOr<std::vector<Variable>> mnistCnn(const std::array<int, 3>& shape, int classes) {
  const std::int64_t rows = halfUp(halfUp(shape[0]));
  const std::int64_t columns = halfUp(halfUp(shape[1]));
  List list;
  const Initializer weights = truncatedNormal(0.1);
  list.layer("conv1", {5, 5, shape[2], 32}, weights, kTenth);
  list.layer("conv2", {5, 5, 32, 64}, weights, kTenth);
  list.layer("fc1", {rows * columns * 64, 1024}, weights, kTenth);
  list.layer("fc2", {1024, classes}, weights, kTenth);
  return list.take();
}

Status checkWidth(const std::string& field, int index, int width) {
  if (width >= 1) return absl::OkStatus();
  return invalidInput(fmt::format("{}[{}]", field, index), fmt::format("{} is below 1", width));
}

// hidden1 ... hiddenN, output.
Status addDenseLayers(const v1::ModelSpec& model, std::int64_t inputs, std::int64_t outputs,
                      List& list) {
  const auto dense = [&](const std::string& name, std::int64_t width) {
    list.layer(name, {inputs, width}, truncatedNormal(1 / std::sqrt(double(inputs))), kZero);
    inputs = width;
  };
  for (int i = 0; i < model.hidden_size(); ++i) {
    TY_RETURN_IF_ERROR(checkWidth("model.hidden", i, model.hidden(i)));
    dense(fmt::format("hidden{}", i + 1), model.hidden(i));
  }
  dense("output", outputs);
  return absl::OkStatus();
}

StatusOr<std::vector<Variable>> mlp(const v1::ModelSpec& model, const std::array<int, 3>& shape,
                                    int classes) {
  List list;
  TY_RETURN_IF_ERROR(
      addDenseLayers(model, std::int64_t{shape[0]} * shape[1] * shape[2], classes, list));
  return list.take();
}

// `shape`: [1, numbers, deep inputs], the numbers being among the deep inputs.
Status checkTabular(const v1::ModelSpec& model, const std::array<int, 3>& shape, int classes) {
  const auto [one, numbers, deep] = shape;
  if (one != 1 || numbers < 0 || numbers > deep) {
    return invalidInput("training.data",
                        fmt::format("wide_and_deep takes [1, numbers, deep inputs], not [{}]",
                                    fmt::join(shape, ", ")));
  }
  if (deep == 0) {
    return invalidInput("training.tables",
                        "wide_and_deep needs a table of a dim above 1, or a column of kind Number");
  }
  if (classes != 2) {
    return invalidInput("training.data",
                        fmt::format("{} classes, wide_and_deep tells 2 apart", classes));
  }
  if (model.hidden().empty())
    return invalidInput("model.hidden", "missing: wide_and_deep needs a hidden layer");
  return absl::OkStatus();
}

StatusOr<std::vector<Variable>> wideAndDeep(const v1::ModelSpec& model,
                                            const std::array<int, 3>& shape, int classes) {
  TY_RETURN_IF_ERROR(checkTabular(model, shape, classes));
  List list;
  TY_RETURN_IF_ERROR(addDenseLayers(model, shape[2], /*outputs=*/1, list));
  if (shape[1] > 0) list.weights("numbers", {shape[1]}, kZero);
  return list.take();
}

// `shape`: [features, numbers, dim].
Status checkDlrm(const v1::ModelSpec& model, const std::array<int, 3>& shape, int classes) {
  const auto [features, numbers, dim] = shape;
  if (features < 1 || dim < 1)
    return invalidInput("training.tables", "missing: dlrm needs a table");
  if (numbers < 1) {
    return invalidInput("training.data.columns", "missing: dlrm needs a column of kind Number");
  }
  if (classes != 2)
    return invalidInput("training.data", fmt::format("{} classes, dlrm tells 2 apart", classes));
  if (model.hidden().empty())
    return invalidInput("model.hidden", "missing: dlrm needs a hidden layer");
  if (model.bottom_hidden().empty())
    return invalidInput("model.bottomHidden", "missing: dlrm needs a layer for the numbers");
  const int last = *model.bottom_hidden().rbegin();
  if (last == dim) return absl::OkStatus();
  return invalidInput("model.bottomHidden",
                      fmt::format("ends in {}, which must be the tables' dim {}", last, dim));
}

StatusOr<std::vector<Variable>> dlrm(const v1::ModelSpec& model, const std::array<int, 3>& shape,
                                     int classes) {
  TY_RETURN_IF_ERROR(checkDlrm(model, shape, classes));
  const std::int64_t features = shape[0], dim = shape[2];
  List list;
  std::int64_t inputs = shape[1];
  const auto layer = [&](std::string_view name, int number, int width) {
    list.interactionLayer(fmt::format("{}{}", name, number + 1), inputs, width);
    inputs = width;
  };
  for (int i = 0; i < model.bottom_hidden_size(); ++i) {
    TY_RETURN_IF_ERROR(checkWidth("model.bottomHidden", i, model.bottom_hidden(i)));
    layer("bottom", i, model.bottom_hidden(i));
  }
  inputs = dim + features * (features + 1) / 2;
  for (int i = 0; i < model.hidden_size(); ++i) {
    TY_RETURN_IF_ERROR(checkWidth("model.hidden", i, model.hidden(i)));
    layer("hidden", i, model.hidden(i));
  }
  list.interactionLayer("output", inputs, 1);
  return list.take();
}

StatusOr<std::vector<Variable>> vgg19(const std::array<int, 3>& shape, int classes) {
  if (shape[0] < 32 || shape[1] < 32) {
    return invalidInput(
        "training.data.shape",
        fmt::format("vgg19 needs at least 32x32 pixels, not {}x{}", shape[0], shape[1]));
  }
  struct Block {
    int layers;
    std::int64_t channels;
  };
  constexpr Block kBlocks[] = {{2, 64}, {2, 128}, {4, 256}, {4, 512}, {4, 512}};
  List list;
  std::int64_t inputs = shape[2];
  int number = 0;
  for (const Block& block : kBlocks) {
    ++number;
    for (int layer = 1; layer <= block.layers; ++layer) {
      list.layer(fmt::format("conv{}_{}", number, layer), {3, 3, inputs, block.channels},
                 truncatedNormal(std::sqrt(2.0 / (9.0 * double(inputs)))), kZero);
      inputs = block.channels;
    }
  }
  inputs *= std::int64_t{shape[0] / 32} * (shape[1] / 32);
  const std::pair<const char*, std::int64_t> dense[] = {
      {"fc6", 4096}, {"fc7", 4096}, {"fc8", classes}};
  for (const auto& [name, outputs] : dense) {
    list.layer(name, {inputs, outputs}, truncatedNormal(std::sqrt(2.0 / double(inputs))), kZero);
    inputs = outputs;
  }
  return list.take();
}

Status checkImages(const std::array<int, 3>& shape, int classes) {
  std::int64_t left = kMaxElements;
  for (const int dimension : shape) {
    if (dimension < 1) {
      return invalidInput("training.data.shape",
                          fmt::format("{} is below 1 in [{}]", dimension, fmt::join(shape, ", ")));
    }
    left /= dimension;
  }
  if (left == 0) {
    return invalidInput("training.data.shape",
                        fmt::format("[{}] is more than {} values per sample",
                                    fmt::join(shape, ", "), formatCount(kMaxElements)));
  }
  if (classes < 1)
    return invalidInput("training.data.classes", fmt::format("{} is below 1", classes));
  return absl::OkStatus();
}

int numbersOf(const v1::DataSpec& data) {
  const std::vector<v1::ColumnSpec> columns = dataColumns(data);
  return static_cast<int>(
      std::count_if(columns.begin(), columns.end(),
                    [](const v1::ColumnSpec& column) { return column.kind() == "Number"; }));
}

// What the columns of numbers and the tables' rows come to.
std::array<int, 3> tabularShape(const v1::Training& training) {
  const int numbers = numbersOf(training.data());
  if (training.model().name() == "dlrm") {
    int features = 0;
    for (const v1::TableSpec& table : training.tables()) features += table.features_size();
    return {features, numbers, training.tables().empty() ? 0 : training.tables(0).dim()};
  }
  std::int64_t deep = numbers;
  for (const v1::TableSpec& table : training.tables())
    if (table.dim() > 1) deep += std::int64_t{table.dim()} * table.features_size();
  constexpr std::int64_t kLargest = std::numeric_limits<int>::max();
  return {1, numbers, static_cast<int>(std::min(deep, kLargest))};
}

}  // namespace

Variable globalStep() {
  Variable step;
  step.name = kGlobalStep;
  step.dtype = DType::kInt32;
  step.trainable = false;
  return step;
}

StatusOr<std::vector<Variable>> catalogVariables(const v1::ModelSpec& model,
                                                 const std::array<int, 3>& input_shape,
                                                 int classes) {
  if (model.name() == "wide_and_deep") return wideAndDeep(model, input_shape, classes);
  if (model.name() == "dlrm") return dlrm(model, input_shape, classes);
  TY_RETURN_IF_ERROR(checkImages(input_shape, classes));
  if (model.name() == "mnist_cnn") return mnistCnn(input_shape, classes);
  if (model.name() == "mlp") return mlp(model, input_shape, classes);
  if (model.name() == "vgg19") return vgg19(input_shape, classes);
  return invalidInput(
      "model.name",
      fmt::format("\"{}\" is none of mnist_cnn, mlp, vgg19, wide_and_deep, dlrm", model.name()));
}

InputShape impliedInput(const v1::Training& training) {
  if (isTabular(training.model())) return {tabularShape(training), 2};
  InputShape input{{28, 28, 1}, 10};
  if (training.model().name() == "vgg19") input = {{224, 224, 3}, 1000};
  const v1::DataSpec& data = training.data();
  if (data.format() != "synthetic") return input;
  if (data.shape_size() == 3) input.shape = {data.shape(0), data.shape(1), data.shape(2)};
  if (data.has_classes()) input.classes = data.classes();
  return input;
}

}  // namespace trainyard::runtime
