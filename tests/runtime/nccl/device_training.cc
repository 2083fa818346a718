#include "tests/runtime/nccl/device_training.h"

#include <array>
#include <cmath>
#include <memory>
#include <thread>

#include "base/core/rng.h"
#include "runtime/catalog/catalog.h"
#include "runtime/model/model.h"
#include "runtime/ring/exchange.h"

namespace trainyard::runtime::nccl::testing {
namespace {

constexpr int kSteps = 8;
constexpr int kBatch = 16;
constexpr int kClasses = 10;
constexpr std::array<int, 3> kShape{8, 8, 1};
constexpr std::uint64_t kSeed = 5;
constexpr float kRate = 0.1F;

// A pattern for each class, and noise: a model learns it in a few steps.
Batch batchOf(int rank) {
  Batch batch;
  batch.shape = kShape;
  Rng rng(kSeed + static_cast<std::uint64_t>(rank));
  for (int n = 0; n < kBatch; ++n) {
    const int label = (n + rank) % kClasses;
    for (int i = 0; i < kShape[0] * kShape[1]; ++i) {
      const float pattern = i % kClasses == label ? 1.0F : 0.0F;
      batch.images.push_back(pattern + 0.1F * static_cast<float>(rng.unit()));
    }
    batch.labels.push_back(label);
    batch.keys.push_back(rank * kBatch + n);
  }
  return batch;
}

class Rank {
 public:
  Status open(const Training& training, int rank) {
    rank_ = rank;
    v1::ModelSpec spec;
    spec.set_name("mnist_cnn");
    TY_ASSIGN_OR_RETURN(model_, makeModel(spec, kShape, kClasses, kSeed, training.compute(rank)));
    std::vector<collective::PlannedTensor> tensors;
    for (std::size_t v = variables(); v-- > 0;) {
      const Variable& variable = model_->variables()[v];
      initialise(variable, kSeed, 0, model_->weights(static_cast<int>(v)));
      tensors.push_back({variable.name, ElementType::kFloat32, variable.elements()});
    }
    ring::ExchangeOptions options;
    options.token = "token";
    options.buckets = {1 << 10, 1 << 16};
    if (training.device) {
      TY_ASSIGN_OR_RETURN(options.device, training.device(rank));
    }
    TY_ASSIGN_OR_RETURN(exchange_, ring::Exchange::make(options, std::move(tensors),
                                                        [](std::int64_t) { return false; }));
    return absl::OkStatus();
  }

  transport::TcpAddress address() const { return {"127.0.0.1", exchange_->port()}; }

  Status train(std::vector<transport::TcpAddress> addresses) {
    ring::RingPlace place;
    place.epoch = 1;
    place.rank = rank_;
    place.addresses = std::move(addresses);
    TY_RETURN_IF_ERROR(exchange_->join(place));
    trained_.on_device = exchange_->onDevice();
    if (!model_->deliverOnDevice(trained_.on_device))
      return absl::InternalError("the model cannot deliver on its device");
    const Batch batch = batchOf(rank_);
    for (int step = 0; step < kSteps; ++step) TY_RETURN_IF_ERROR(takeStep(batch, step));
    for (std::size_t v = 0; v < variables(); ++v) {
      const std::span<float> weights = model_->weights(static_cast<int>(v));
      trained_.weights.insert(trained_.weights.end(), weights.begin(), weights.end());
    }
    return absl::OkStatus();
  }

  const Trained& trained() const { return trained_; }

 private:
  std::size_t variables() const { return model_->variables().size(); }

  Status takeStep(const Batch& batch, int step) {
    exchange_->begin(step);
    const auto tensorOf = [&](std::size_t variable) { return variables() - 1 - variable; };
    const auto sink = [&](Gradient gradient) {
      exchange_->submit(tensorOf(static_cast<std::size_t>(gradient.variable)), gradient.values,
                        gradient.on_device);
    };
    TY_ASSIGN_OR_RETURN(const BatchLoss loss, model_->forwardBackward(batch, sink));
    TY_ASSIGN_OR_RETURN(const ring::StepTotals totals,
                        exchange_->finish({loss.loss_sum, static_cast<double>(loss.samples)}));
    for (std::size_t v = 0; v < variables(); ++v) {
      const std::span<const float> sum = exchange_->sum(tensorOf(v));
      const std::span<float> weights = model_->weights(static_cast<int>(v));
      const auto scale = kRate / static_cast<float>(totals.samples);
      for (std::size_t i = 0; i < sum.size(); ++i) weights[i] -= scale * sum[i];
    }
    trained_.losses.push_back(totals.loss_sum / totals.samples);
    return absl::OkStatus();
  }

  int rank_ = 0;
  std::unique_ptr<Model> model_;
  std::unique_ptr<ring::Exchange> exchange_;
  Trained trained_;
};

}  // namespace

StatusOr<Trained> train(const Training& training) {
  std::vector<Rank> ranks(static_cast<std::size_t>(training.ranks));
  std::vector<transport::TcpAddress> addresses;
  for (int r = 0; r < training.ranks; ++r) {
    Rank& rank = ranks[static_cast<std::size_t>(r)];
    TY_RETURN_IF_ERROR(rank.open(training, r));
    addresses.push_back(rank.address());
  }
  std::vector<Status> results(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ranks.size(); ++r)
    threads.emplace_back([&, r] { results[r] = ranks[r].train(addresses); });
  for (std::thread& thread : threads) thread.join();
  for (const Status& result : results) TY_RETURN_IF_ERROR(result);
  for (const Rank& rank : ranks) {
    if (rank.trained().weights != ranks[0].trained().weights)
      return absl::InternalError("ranks have different weights");
  }
  return ranks[0].trained();
}

double distance(const std::vector<float>& ours, const std::vector<float>& theirs) {
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    difference += std::pow(static_cast<double>(ours.at(i)) - theirs[i], 2);
    size += std::pow(static_cast<double>(theirs[i]), 2);
  }
  return std::sqrt(difference / size);
}

}  // namespace trainyard::runtime::nccl::testing
