#include "runtime/model/layer_specs.h"

namespace trainyard::runtime {
namespace {

// vgg19's convolutions are conv<block>_<layer>; a pool ends each block.
bool endsBlock(const std::vector<Variable>& variables, std::size_t kernel) {
  constexpr std::size_t kBlockDigit = 4;
  return variables[kernel].name[kBlockDigit] != variables[kernel + 2].name[kBlockDigit];
}

}  // namespace

// The catalogue lists kernel and bias of one layer after the other.
std::vector<LayerSpec> layersOf(const v1::ModelSpec& spec, const std::vector<Variable>& variables) {
  using Kind = LayerSpec::Kind;
  const bool vgg = spec.name() == "vgg19";
  std::vector<LayerSpec> result;
  for (std::size_t v = 0; v < variables.size(); v += 2) {
    LayerSpec layer{Kind::kDense, static_cast<int>(v), static_cast<int>(v) + 1, true, 0};
    if (variables[v].shape.size() == 4) {
      layer.kind = vgg ? Kind::kConv : Kind::kConvPool;
    } else {
      layer.relu = v + 2 < variables.size();
      layer.dropout = layer.relu ? spec.dropout() : 0;
    }
    result.push_back(layer);
    if (layer.kind == Kind::kConv && endsBlock(variables, v)) result.push_back({Kind::kPool});
  }
  return result;
}

}  // namespace trainyard::runtime
