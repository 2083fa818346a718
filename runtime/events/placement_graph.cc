#include "runtime/events/placement_graph.h"

#include <cstddef>
#include <string_view>
#include <vector>

#include "fmt/format.h"
#include "runtime/events/internal/wire_format.h"

namespace trainyard::runtime {
namespace {

using internal::appendBytes;
using internal::appendNumber;

constexpr std::size_t kMostParts = 1000;
constexpr std::uint64_t kProducer = 1;  // GraphDef versions: any that readers do not refuse
constexpr std::uint64_t kFloat = 1;     // DataType DT_FLOAT
constexpr std::uint64_t kInt32 = 3;     // DT_INT32

std::vector<std::int64_t> shapeOf(const Variable& variable, const Part& part) {
  if (part.axis == kFlatAxis) return {part.end - part.begin};
  std::vector<std::int64_t> shape = variable.shape;
  if (!shape.empty()) shape[static_cast<std::size_t>(part.axis)] = part.end - part.begin;
  return shape;
}

// TensorShapeProto: repeated Dim dim = 2; Dim: int64 size = 1.
std::string shapeMessage(const std::vector<std::int64_t>& shape) {
  std::string message;
  for (const std::int64_t size : shape) {
    std::string dim;
    appendNumber(dim, 1, static_cast<std::uint64_t>(size));
    appendBytes(message, 2, dim);
  }
  return message;
}

// NodeDef.attr: map entries of string key = 1, AttrValue value = 2.
void appendAttribute(std::string& node, std::string_view name, std::string_view value) {
  std::string entry;
  appendBytes(entry, 1, name);
  appendBytes(entry, 2, value);
  appendBytes(node, 5, entry);
}

// NodeDef: string name = 1, string op = 2, repeated string input = 3, string device = 4.
std::string nodeOf(std::string_view name, std::string_view op, std::string_view device,
                   const std::vector<std::string>& inputs) {
  std::string node;
  appendBytes(node, 1, name);
  appendBytes(node, 2, op);
  for (const std::string& input : inputs) appendBytes(node, 3, input);
  appendBytes(node, 4, device);
  return node;
}

// AttrValue: ListValue list = 1 (of it repeated TensorShapeProto shape = 7), DataType type = 6,
// TensorShapeProto shape = 7. "_output_shapes" is what the edges are labelled with.
std::string variableNode(std::string_view name, const Variable& variable, const Part& part) {
  const std::string shape = shapeMessage(shapeOf(variable, part));
  std::string type, shaped, shapes, list;
  appendNumber(type, 6, variable.dtype == DType::kInt32 ? kInt32 : kFloat);
  appendBytes(shaped, 7, shape);
  appendBytes(shapes, 7, shape);
  appendBytes(list, 1, shapes);
  std::string node = nodeOf(name, "VariableV2", fmt::format("/job:ps/task:{}", part.ps), {});
  appendAttribute(node, "dtype", type);
  appendAttribute(node, "shape", shaped);
  appendAttribute(node, "_output_shapes", list);
  return node;
}

}  // namespace

std::string placementGraph(const Placement& placement) {
  std::vector<int> parts_of(placement.variables.size(), 0);
  for (const Part& part : placement.parts) ++parts_of[static_cast<std::size_t>(part.variable)];
  std::vector<int> next(placement.variables.size(), 0);
  std::vector<std::string> names;
  std::string graph;  // GraphDef: repeated NodeDef node = 1, VersionDef versions = 4
  for (const Part& part : placement.parts) {
    if (names.size() == kMostParts) break;
    const auto index = static_cast<std::size_t>(part.variable);
    const Variable& variable = placement.variables[index];
    names.push_back(parts_of[index] == 1 ? variable.name
                                         : fmt::format("{}/part_{}", variable.name, next[index]++));
    appendBytes(graph, 1, variableNode(names.back(), variable, part));
  }
  appendBytes(graph, 1, nodeOf("model", "Model", "/job:worker", names));
  std::string versions;  // VersionDef: int32 producer = 1
  appendNumber(versions, 1, kProducer);
  appendBytes(graph, 4, versions);
  return graph;
}

}  // namespace trainyard::runtime
