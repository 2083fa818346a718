#include "runtime/torch/internal/row_parameters.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

namespace trainyard::runtime {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::IValue;
using torch::jit::Node;
using torch::jit::Use;
using torch::jit::Value;

// Without calls, and without branches that a constant decides: torch.nn.functional.embedding has
// one that writes to the weights, for max_norm.
std::shared_ptr<Graph> plainGraph(const torch::jit::Module& module) {
  std::shared_ptr<Graph> graph = module.get_method("loss").graph()->copy();
  torch::jit::Inline(*graph);
  torch::jit::ConstantPropagationImmutableTypes(graph);
  return graph;
}

enum class UseKind { kRows, kNoGradient, kOther };

UseKind kindOf(const Use& use) {
  static const c10::Symbol bag = c10::Symbol::fromQualString("aten::embedding_bag");
  const Node& node = *use.user;
  switch (node.kind()) {
    case c10::prim::dtype:
    case c10::prim::device:
    case c10::aten::size:
      return UseKind::kNoGradient;
    default:
      break;
  }
  if ((node.kind() != c10::aten::embedding && node.kind() != bag) || use.offset != 0)
    return UseKind::kOther;
  const auto sparse = torch::jit::constant_as<bool>(node.namedInput("sparse"));
  return sparse.value_or(false) ? UseKind::kRows : UseKind::kOther;
}

// Follows the module's attributes through a graph to the uses of its parameters.
class Uses {
 public:
  Uses(const std::vector<at::Tensor>& parameters, const torch::jit::Module& module,
       const Graph& graph)
      : parameters_(parameters), by_rows_(parameters.size()), otherwise_(parameters.size()) {
    follow(graph.inputs()[0], module._ivalue());
    walk(*graph.block());
  }

  std::vector<int> rowsAlone() const {
    std::vector<int> numbers;
    if (lost_) return numbers;
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      const at::Tensor& matrix = parameters_[p];
      if (by_rows_[p] && !otherwise_[p] && matrix.dim() == 2 && matrix.numel() > 0)
        numbers.push_back(static_cast<int>(p));
    }
    return numbers;
  }

 private:
  void walk(const Block& block) {
    for (const Node* node : block.nodes()) {
      if (node->kind() == c10::prim::GetAttr) read(*node);
      if (node->kind() == c10::prim::SetAttr) write(*node);
      for (const Block* inner : node->blocks()) walk(*inner);
    }
  }

  // A module may only be asked for its attributes: what else gets it could use any of them.
  void follow(const Value* value, const IValue& object) {
    objects_[value] = object;
    for (const Use& use : value->uses()) {
      const bool asks = use.user->kind() == c10::prim::GetAttr ||
                        (use.user->kind() == c10::prim::SetAttr && use.offset == 0);
      if (!asks) lost_ = true;
    }
  }

  const IValue* attribute(const Node& node) {
    const auto object = objects_.find(node.input(0));
    if (object == objects_.end()) return nullptr;
    found_ = object->second.toObject()->getAttr(node.s(c10::attr::name));
    return &found_;
  }

  void read(const Node& node) {
    const IValue* const found = attribute(node);
    if (found == nullptr) return;
    if (found->isObject()) return follow(node.output(), IValue(*found));
    if (const auto p = parameterOf(*found)) {
      for (const Use& use : node.output()->uses()) count(*p, kindOf(use));
    }
  }

  void write(const Node& node) {
    const IValue* const found = attribute(node);
    if (found == nullptr) return;
    if (const auto p = parameterOf(*found)) otherwise_[*p] = true;
  }

  void count(std::size_t parameter, UseKind kind) {
    if (kind == UseKind::kRows) by_rows_[parameter] = true;
    if (kind == UseKind::kOther) otherwise_[parameter] = true;
  }

  std::optional<std::size_t> parameterOf(const IValue& value) const {
    if (!value.isTensor()) return std::nullopt;
    const auto at =
        std::find_if(parameters_.begin(), parameters_.end(),
                     [&](const at::Tensor& tensor) { return tensor.is_same(value.toTensor()); });
    if (at == parameters_.end()) return std::nullopt;
    return static_cast<std::size_t>(at - parameters_.begin());
  }

  const std::vector<at::Tensor>& parameters_;
  std::vector<bool> by_rows_;
  std::vector<bool> otherwise_;
  bool lost_ = false;
  IValue found_;
  std::map<const Value*, IValue> objects_;  // the module and its parts
};

}  // namespace

std::vector<int> rowParameters(const torch::jit::Module& module,
                               const std::vector<at::Tensor>& parameters) {
  const std::shared_ptr<Graph> graph = plainGraph(module);
  return Uses(parameters, module, *graph).rowsAlone();
}

}  // namespace trainyard::runtime
