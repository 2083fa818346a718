// Steps of two workers of an all-reduce whose gradients are on imitated devices: from the epoch's
// announcement to the weights.
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/ring/ring_synchronizer.h"
#include "tests/runtime/collective/fake_device.h"
#include "tests/runtime/ring/ring_views.h"

namespace trainyard::runtime::ring {
namespace {

using collective::testing::FakeDevices;
using collective::testing::FakeMemory;

constexpr int kDeviceRanks = 2;
constexpr int kSteps = 3;
constexpr std::size_t kElements = 4;

struct Worker {
  Worker(int rank, FakeDevices& devices, News& news) {
    spec.set_name("Momentum");
    spec.set_learning_rate(0.5);
    spec.set_momentum(0);
    optimizer = *makeOptimizer(spec);
    v1::PlacementSpec all;
    all.set_strategy("Balanced");
    Variable variable;
    variable.name = "w";
    variable.shape = {static_cast<std::int64_t>(kElements)};
    placement = *place(all, {variable}, 1);
    RingSynchronizerOptions options;
    options.worker.index = static_cast<std::uint32_t>(rank);
    options.worker.evaluates = false;
    options.exchange.token = "token";
    options.exchange.device.library = devices.library();
    options.exchange.device.memory = memory;
    options.exchange.device.identity = std::to_string(rank);
    options.load = [this](const v1::EpochInfo&, const LoadChunk& load) {
      const std::vector<float> ones(kElements, 1.0F);
      for (std::uint32_t c = 0; c < placement.chunks.size(); ++c) load(c, 0, ones, {ones});
      return absl::OkStatus();
    };
    options.write = [](const Snapshot&) { return v1::ShardFile(); };
    synchronizer = std::make_unique<RingSynchronizer>(
        options, placement, std::vector<std::span<float>>{weights}, *optimizer, LearningRate(spec),
        systemClock(), [&news] { news.tell(); });
  }
  // Its steps; the gradient is `value` everywhere.
  Status train(float value) {
    for (int step = 0; step < kSteps; ++step) {
      TY_ASSIGN_OR_RETURN(const Turn turn, synchronizer->next());
      if (turn.kind != Turn::Kind::kTrain || turn.step != step)
        return absl::InternalError("another turn");
      if (!synchronizer->wantsGradientsOnDevice()) return absl::InternalError("on the host");
      const auto held = memory->holding(std::vector<float>(kElements, value));
      Gradient gradient;
      gradient.values = {reinterpret_cast<const float*>(held.get()), kElements};
      gradient.owner = held;
      gradient.on_device = true;
      synchronizer->push(std::move(gradient));
      TY_ASSIGN_OR_RETURN(const StepOutcome outcome, synchronizer->finish({5.0, turn.samples}));
      if (!outcome.complete) return absl::InternalError("the step was not taken");
    }
    return absl::OkStatus();
  }

  v1::OptimizerSpec spec;
  std::unique_ptr<Optimizer> optimizer;
  Placement placement;
  std::vector<float> weights = std::vector<float>(kElements);
  std::shared_ptr<FakeMemory> memory = std::make_shared<FakeMemory>();
  std::unique_ptr<RingSynchronizer> synchronizer;
};

TEST(DeviceSynchronizerTest, GradientsOnDevicesBecomeTheHostsWeights) {
  News news;
  FakeDevices devices;
  std::vector<std::unique_ptr<Worker>> workers;
  for (int r = 0; r < kDeviceRanks; ++r) {
    workers.push_back(std::make_unique<Worker>(r, devices, news));
    ASSERT_TRUE(workers.back()->synchronizer->open().ok());
  }
  RingViews views;
  for (const auto& worker : workers) views.add(*worker->synchronizer);
  views.prepare(/*step_samples=*/20, /*rank_samples=*/10);
  std::vector<Status> results(kDeviceRanks);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < workers.size(); ++r)
    threads.emplace_back([&, r] { results[r] = workers[r]->train(r == 0 ? 10.0F : 30.0F); });
  EXPECT_TRUE(news.await([&] { return views.prepared(); }));
  views.show(v1::PHASE_ACTIVE);
  for (std::thread& thread : threads) thread.join();
  for (int r = 0; r < kDeviceRanks; ++r) {
    const auto at = static_cast<std::size_t>(r);
    EXPECT_TRUE(results[at].ok()) << results[at];
    // Each step takes 0.5 times the mean over 20 samples, 2.
    EXPECT_EQ(workers[at]->weights, std::vector<float>(kElements, 1.0F - kSteps)) << r;
  }
  EXPECT_EQ(devices.operations(), static_cast<std::size_t>(kSteps));
}

}  // namespace
}  // namespace trainyard::runtime::ring
