#include "runtime/model/simulated.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/core/check.h"

namespace trainyard::runtime {
namespace {

constexpr double kForwardShare = 1.0 / 3;

// Height x width of the output of a convolution of the model, before its pool.
double positions(std::string_view model, std::string_view kernel, const std::array<int, 3>& shape) {
  TY_CHECK(kernel.starts_with("conv"), "the catalogue names convolutions conv<number>...");
  // Both models halve the picture before each number but the first: mnist_cnn up, vgg19 down.
  std::int64_t height = shape[0];
  std::int64_t width = shape[1];
  const int up = model == "mnist_cnn" ? 1 : 0;
  for (int pools = kernel[4] - '1'; pools > 0; --pools) {
    height = (height + up) / 2;
    width = (width + up) / 2;
  }
  return static_cast<double>(height) * static_cast<double>(width);
}

class SimulatedModel : public Model {
 public:
  SimulatedModel(std::vector<Variable> variables, std::vector<GradientMoment> moments, int classes,
                 StepTimer timer)
      : variables_(std::move(variables)),
        moments_(std::move(moments)),
        loss_(std::log(static_cast<double>(classes))),
        timer_(std::move(timer)) {
    for (const Variable& v : variables_) {
      weights_.emplace_back(static_cast<std::size_t>(v.elements()));
      largest_ = std::max(largest_, weights_.back().size());
    }
  }

  const std::vector<Variable>& variables() const override { return variables_; }

  std::span<float> weights(int variable) override {
    TY_CHECK(variable >= 0 && variable < static_cast<int>(weights_.size()),
             "callers number variables as variables() does");
    return weights_[variable];
  }

  StatusOr<BatchLoss> forwardBackward(const Batch& batch, const GradientSink& sink) override {
    const TimePoint start = timer_.now();
    makeGradient(batch.size());
    for (const GradientMoment& moment : moments_) {
      timer_.wait_until(start + fromSeconds(toSeconds(timer_.step) * moment.at));
      sink({moment.variable,
            std::span<const float>(*gradient_).first(weights_[moment.variable].size()), gradient_});
    }
    return BatchLoss{loss_ * batch.size(), batch.size()};
  }

  StatusOr<BatchScore> evaluate(const Batch& batch) override {
    const auto hits = std::count(batch.labels.begin(), batch.labels.end(), 0);
    return BatchScore{hits, batch.size(), loss_ * batch.size()};
  }

 private:
  // The buffer may still be on its way to a server: another number of samples takes a new one.
  void makeGradient(int samples) {
    if (gradient_ != nullptr && samples == samples_) return;
    samples_ = samples;
    gradient_ = std::make_shared<const std::vector<float>>(
        largest_, static_cast<float>(samples) * kSimulatedGradient);
  }

  std::vector<Variable> variables_;
  std::vector<GradientMoment> moments_;
  double loss_;
  StepTimer timer_;
  std::vector<std::vector<float>> weights_;
  std::size_t largest_ = 0;
  int samples_ = 0;
  std::shared_ptr<const std::vector<float>> gradient_;  // the sum over samples_ samples
};

}  // namespace

std::vector<GradientMoment> backwardMoments(const v1::ModelSpec& spec,
                                            const std::vector<Variable>& variables,
                                            const std::array<int, 3>& shape) {
  const int layers = static_cast<int>(variables.size()) / 2;
  std::vector<double> cost(layers);
  double total = 0;
  for (int layer = 0; layer < layers; ++layer) {
    const Variable& kernel = variables[2 * layer];
    const bool convolution = kernel.shape.size() == 4;
    cost[layer] = static_cast<double>(kernel.elements()) * (layer == 0 ? 1 : 2) *
                  (convolution ? positions(spec.name(), kernel.name, shape) : 1);
    total += cost[layer];
  }
  std::vector<GradientMoment> moments;
  double done = 0;
  const auto now = [&] { return kForwardShare + (1 - kForwardShare) * (done / total); };
  for (int layer = layers - 1; layer >= 0; --layer) {
    moments.push_back({2 * layer + 1, now()});
    done = layer == 0 ? total : done + cost[layer];
    moments.push_back({2 * layer, now()});
  }
  return moments;
}

std::unique_ptr<Model> makeSimulatedModel(std::vector<Variable> variables,
                                          std::vector<GradientMoment> moments, int classes,
                                          StepTimer timer) {
  return std::make_unique<SimulatedModel>(std::move(variables), std::move(moments), classes,
                                          std::move(timer));
}

}  // namespace trainyard::runtime
