#include "tests/runtime/model/script_fixture.h"

#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/frontend/sugared_value.h>
#include <torch/script.h>

#include <memory>

namespace trainyard {
namespace {

// Python's torch.jit.fork is a name of its own here.
class Names : public torch::jit::NativeResolver {
 public:
  std::shared_ptr<torch::jit::SugaredValue> resolveValue(
      const std::string& name, torch::jit::GraphFunction& method,
      const torch::jit::SourceRange& place) override {
    if (name == "fork") return torch::jit::SpecialFormValue::create(c10::prim::fork);
    return NativeResolver::resolveValue(name, method, place);
  }
};

}  // namespace

void writeScript(const std::string& path, std::int64_t inputs, std::int64_t classes,
                 const ScriptOptions& options) {
  torch::jit::Module module("__torch__.Regression");
  module.register_attribute("training", c10::BoolType::get(), true);
  at::manual_seed(5);
  at::Tensor weight = 0.1 * at::randn({inputs, classes});
  if (options.double_weight) weight = weight.to(at::kDouble);
  at::Tensor bias = 0.1 * at::randn({classes});
  weight.set_requires_grad(options.trained);
  bias.set_requires_grad(options.trained);
  at::Tensor table = 0.1 * at::randn({16 * inputs, classes});
  table.set_requires_grad(true);
  if (!options.words.empty()) {
    torch::jit::Module words("__torch__.Words");
    words.register_parameter("weight", table, /*is_buffer=*/false);
    words.define(options.words);
    module.register_module("words", words);
  } else if (options.embedding) {
    module.register_parameter("table", table, /*is_buffer=*/false);
  } else {
    module.register_parameter("weight", weight, /*is_buffer=*/false);
  }
  module.register_parameter("bias", bias, /*is_buffer=*/false);
  if (options.tied) module.register_parameter("again", weight, /*is_buffer=*/false);
  module.register_buffer("mean", at::zeros({inputs}));
  module.define(options.source, std::make_shared<Names>());
  module.save(path);
}

}  // namespace trainyard
