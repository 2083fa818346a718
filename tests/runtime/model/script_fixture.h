// TorchScript files for tests, written by LibTorch. Free of torch.
#pragma once

#include <cstdint>
#include <string>

namespace trainyard {

// Softmax regression, as the built-in mlp without hidden layers computes it: parameters weight
// [inputs, classes] and bias [classes]; a buffer `mean` follows the mean of the images in training
// (a tenth of the way in each pass) and is taken off them in metrics(). The weights are drawn.
inline constexpr char kScriptLoss[] = R"(
def loss(self, batch: Dict[str, Tensor]) -> Tensor:
    x = batch["images"].flatten(1)
    if self.training:
        self.mean.mul_(0.9).add_(x.mean(0) * 0.1)
    return torch.nll_loss(torch.log_softmax(x.matmul(self.weight) + self.bias, 1), batch["labels"])
)";
inline constexpr char kScriptMetrics[] = R"(
def metrics(self, batch: Dict[str, Tensor]) -> Dict[str, Tensor]:
    y = (batch["images"].flatten(1) - self.mean).matmul(self.weight) + self.bias
    return {"accuracy": y.argmax(1).eq(batch["labels"]).float().mean(),
            "loss": torch.nll_loss(torch.log_softmax(y, 1), batch["labels"])}
)";

// Each pixel's brightness, of 16 steps, picks a row of `table` [16 inputs, classes]; the logits are
// their sum and the bias. The gradient of the table is sparse.
inline constexpr char kEmbeddingSource[] = R"(
def logits(self, batch: Dict[str, Tensor], sparse: bool) -> Tensor:
    steps = (batch["images"].flatten(1) * 15.0).long()
    rows = steps + torch.arange(steps.size(1)) * 16
    return torch.embedding(self.table, rows, -1, False, sparse).sum(1) + self.bias

def loss(self, batch: Dict[str, Tensor]) -> Tensor:
    y = self.logits(batch, True)
    return torch.nll_loss(torch.log_softmax(y, 1), batch["labels"])

def metrics(self, batch: Dict[str, Tensor]) -> Dict[str, Tensor]:
    return {"accuracy": self.logits(batch, True).argmax(1).eq(batch["labels"]).float().mean()}
)";

struct ScriptOptions {
  std::string source = std::string(kScriptLoss) + kScriptMetrics;
  bool trained = true;         // parameters require gradients
  bool double_weight = false;  // float64
  bool embedding = false;      // a parameter `table` instead of weight, for kEmbeddingSource
  // Not empty: the code of a part `words`, which has the table as its `weight` instead.
  std::string words = "";
  bool tied = false;  // a second parameter `again` in the memory of weight
};
void writeScript(const std::string& path, std::int64_t inputs, std::int64_t classes,
                 const ScriptOptions& options = {});

}  // namespace trainyard
