#include "tests/runtime/model/autograd_vgg19.h"

#include <torch/torch.h>

namespace trainyard::runtime::reference {
namespace {

// Layers of each block; a pool ends it.
constexpr int kBlocks[] = {2, 2, 4, 4, 4};

torch::Tensor inDouble(const std::vector<float>& values, at::IntArrayRef shape) {
  return torch::from_blob(const_cast<float*>(values.data()), shape).to(torch::kDouble);
}

torch::Tensor masked(const torch::Tensor& values, const std::vector<double>& mask) {
  if (mask.empty()) return values;
  return values * torch::tensor(mask, torch::kDouble).view(values.sizes());
}

}  // namespace

Vgg19Pass vgg19Pass(const std::vector<std::vector<float>>& weights,
                    const std::vector<std::vector<std::int64_t>>& shapes, const Vgg19Batch& batch,
                    bool gradients) {
  std::vector<torch::Tensor> parameters;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    parameters.push_back(inDouble(weights[i], shapes[i]));
    parameters.back().set_requires_grad(gradients);
  }
  const auto samples = static_cast<std::int64_t>(batch.labels.size());
  torch::Tensor x =
      inDouble(batch.images, {samples, batch.shape[0], batch.shape[1], batch.shape[2]})
          .permute({0, 3, 1, 2});
  std::size_t p = 0;
  for (const int layers : kBlocks) {
    for (int layer = 0; layer < layers; ++layer, p += 2) {
      const torch::Tensor oihw = parameters[p].permute({3, 2, 0, 1});
      x = torch::relu(torch::conv2d(x, oihw, parameters[p + 1], 1, 1));
    }
    x = torch::max_pool2d(x, 2);
  }
  x = x.permute({0, 2, 3, 1}).reshape({samples, -1});
  for (const std::vector<double>& mask : batch.masks) {
    x = masked(torch::relu(x.matmul(parameters[p]) + parameters[p + 1]), mask);
    p += 2;
  }
  x = x.matmul(parameters[p]) + parameters[p + 1];
  const torch::Tensor labels = torch::tensor(batch.labels);
  const torch::Tensor loss = torch::nn::functional::cross_entropy(
      x, labels, torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
  Vgg19Pass pass;
  pass.loss = loss.item<double>();
  pass.hits = x.argmax(1).eq(labels).sum().item<std::int64_t>();
  if (!gradients) return pass;
  loss.backward();
  for (const torch::Tensor& parameter : parameters) {
    const torch::Tensor gradient = parameter.grad().contiguous();
    const double* values = gradient.data_ptr<double>();
    pass.gradients.emplace_back(values, values + gradient.numel());
  }
  return pass;
}

}  // namespace trainyard::runtime::reference
