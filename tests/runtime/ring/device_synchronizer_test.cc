// Steps of two workers of an all-reduce whose gradients are on imitated devices: from the epoch's
// announcement to the weights.
#include <condition_variable>
#include <mutex>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/ring/ring_synchronizer.h"
#include "tests/runtime/collective/fake_device.h"

namespace trainyard::runtime::ring {
namespace {

using collective::testing::FakeDevices;
using collective::testing::FakeMemory;

constexpr int kRanks = 2;
constexpr int kSteps = 3;
constexpr std::size_t kElements = 4;

// What happens on any worker.
class News {
 public:
  void tell() {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
  bool await(const std::function<bool()>& condition) {
    const TimePoint limit = systemClock().now() + std::chrono::seconds(60);
    std::unique_lock lock(mutex_);
    while (!condition()) {
      if (systemClock().now() >= limit) return false;
      changed_.wait_for(lock, std::chrono::milliseconds(20));
    }
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

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
  v1::MemberReport report() const {
    v1::MemberReport report;
    synchronizer->fillReport(report);
    return report;
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

// The coordinator's part.
struct Views {
  Views() {
    view.mutable_coordinator()->set_created(1);
    view.set_stop_at(-1);
    view.set_checkpoint_at(-1);
    view.mutable_epoch()->set_epoch(1);
  }
  void prepare(const std::vector<std::unique_ptr<Worker>>& workers) {
    v1::EpochInfo& epoch = *view.mutable_epoch();
    epoch.set_fresh(true);
    epoch.set_step_samples(20);
    epoch.set_rank_samples(10);
    epoch.set_steps(100);
    epoch.set_lineage(1);
    for (std::uint32_t i = 0; i < workers.size(); ++i) {
      v1::EpochMember* m = epoch.add_members();
      m->mutable_id()->set_role(v1::ROLE_WORKER);
      m->mutable_id()->set_index(i);
      m->set_rank(i);
      m->set_ring_host("127.0.0.1");
      m->set_ring_port(workers[i]->report().ring_port());
    }
  }
  void show(v1::Phase phase, const std::vector<std::unique_ptr<Worker>>& workers) {
    view.set_sequence(view.sequence() + 1);
    view.set_phase(phase);
    for (const auto& worker : workers) worker->synchronizer->onView(view);
  }
  v1::View view;
};

TEST(DeviceSynchronizerTest, GradientsOnDevicesBecomeTheHostsWeights) {
  News news;
  FakeDevices devices;
  std::vector<std::unique_ptr<Worker>> workers;
  for (int r = 0; r < kRanks; ++r) {
    workers.push_back(std::make_unique<Worker>(r, devices, news));
    ASSERT_TRUE(workers.back()->synchronizer->open().ok());
  }
  Views views;
  views.show(v1::PHASE_SEALING, workers);
  views.prepare(workers);
  views.show(v1::PHASE_PREPARING, workers);
  std::vector<Status> results(kRanks);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < workers.size(); ++r)
    threads.emplace_back([&, r] { results[r] = workers[r]->train(r == 0 ? 10.0F : 30.0F); });
  EXPECT_TRUE(news.await([&] {
    return std::ranges::all_of(workers,
                               [](const auto& w) { return w->report().prepared_epoch() == 1; });
  }));
  views.show(v1::PHASE_ACTIVE, workers);
  for (std::thread& thread : threads) thread.join();
  for (int r = 0; r < kRanks; ++r) {
    const auto at = static_cast<std::size_t>(r);
    EXPECT_TRUE(results[at].ok()) << results[at];
    // Each step takes 0.5 times the mean over 20 samples, 2.
    EXPECT_EQ(workers[at]->weights, std::vector<float>(kElements, 1.0F - kSteps)) << r;
  }
  EXPECT_EQ(devices.operations(), static_cast<std::size_t>(kSteps));
}

}  // namespace
}  // namespace trainyard::runtime::ring
