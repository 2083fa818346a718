#include <atomic>
#include <cmath>
#include <memory_resource>
#include <thread>

#include "base/core/failpoint.h"
#include "gmock/gmock.h"
#include "tests/base/process/temp_dir.h"
#include "tests/runtime/ps/synchronizer_bench.h"

namespace trainyard::runtime::ps {
namespace {

using testing::Each;

TEST(PsSynchronizer, AWindowOfOneCarriesThreeWorkersThroughFiftyChunks) {
  constexpr int kSteps = 5;
  PsServer server(10, 3);
  ASSERT_EQ(server.placement.chunks.size(), 50u);
  std::vector<std::unique_ptr<Worker>> workers;
  for (std::uint32_t i = 0; i < 3; ++i) workers.push_back(std::make_unique<Worker>(server, i));
  std::vector<std::thread> threads;
  for (auto& worker : workers) {
    worker->synchronizer.onView(server.activeView(3));
    threads.emplace_back([&worker] {
      for (std::int64_t step = 0; step < kSteps; ++step) worker->step(step);
    });
  }
  for (std::thread& thread : threads) thread.join();
  // Mean gradient of step s: (1 + 2 + 3) / 3 (s + 1) + variable; 30 in five steps.
  for (const auto& worker : workers) {
    for (std::size_t v = 0; v < 10; ++v) {
      EXPECT_THAT(worker->weights(v), Each(-30.0f - 5.0f * static_cast<float>(v))) << v;
    }
    v1::MemberReport report;
    worker->synchronizer.fillReport(report);
    EXPECT_EQ(report.worker().version(), kSteps);
    v1::RuntimeReport traffic;
    worker->synchronizer.traffic().fill(traffic);
    ASSERT_EQ(traffic.traffic_size(), 1);
    EXPECT_EQ(traffic.traffic(0).transmitted_bytes(), 5u * 1600);
    EXPECT_EQ(traffic.traffic(0).received_bytes(), 6u * 1600);
  }
  EXPECT_EQ(server.shard.state().min_version(), kSteps);
}

// From some step on, when the server has opened the memory, nothing is left in the messages.
TEST(PsSynchronizer, NearServersAreReachedThroughSharedMemory) {
  constexpr std::int64_t kMostSteps = 90;
  constexpr auto kRetry = std::chrono::milliseconds(50);
  PsServer server(10, 3);
  std::vector<std::unique_ptr<Worker>> workers;
  for (std::uint32_t i = 0; i < 3; ++i) {
    workers.push_back(std::make_unique<Worker>(server, i, kRetry, 3));
    workers.back()->synchronizer.onView(server.activeView(3));
  }
  std::int64_t steps = 0;
  while (steps < kMostSteps && server.service.sharedRequests() < 300) {
    std::vector<std::thread> threads;
    for (auto& worker : workers) threads.emplace_back([&, step = steps] { worker->step(step); });
    for (std::thread& thread : threads) thread.join();
    ++steps;
  }
  EXPECT_GE(server.service.sharedRequests(), 300u);
  const auto n = static_cast<float>(steps);
  for (const auto& worker : workers) {
    for (std::size_t v = 0; v < 10; ++v) {
      EXPECT_THAT(worker->weights(v), Each(-n * (n + 1) - n * static_cast<float>(v))) << v;
    }
    v1::RuntimeReport traffic;
    worker->synchronizer.traffic().fill(traffic);
    ASSERT_EQ(traffic.traffic_size(), 1);
    EXPECT_EQ(traffic.traffic(0).transmitted_bytes(), static_cast<std::uint64_t>(steps) * 1600);
  }
}

// A step of two ranks, whose mean gradient of variable 9 is 10; with `change` rank 0 makes its own
// 5 more after it has pushed and before rank 1 does, which is when the server sums.
void stepOfTwo(Worker& first, Worker& second, bool change) {
  for (Worker* worker : {&first, &second}) ASSERT_TRUE(worker->synchronizer.next().ok());
  const auto pushed = first.pushAll(1, first.synchronizer.gradientMemory().get());
  for (const auto& values : pushed) {
    for (float& value : *values) value += change ? 5.0f : 0.0f;
  }
  second.pushAll(1);
  std::thread other([&] { EXPECT_TRUE(second.synchronizer.finish({1, 1}).ok()); });
  EXPECT_TRUE(first.synchronizer.finish({1, 1}).ok());
  other.join();
}

TEST(PsSynchronizer, GradientsInItsMemoryAreReadWhereTheyLie) {
  PsServer server(10, 2);
  Worker first(server, 0, std::chrono::milliseconds(50), 2);
  Worker second(server, 1, std::chrono::milliseconds(50), 2);
  for (Worker* worker : {&first, &second}) worker->synchronizer.onView(server.activeView(2));
  // Until the server has opened their memory gradients are sent.
  std::uint64_t before = 0;
  for (int step = 0; step < 90 && server.service.sharedRequests() < before + 100; ++step) {
    before = server.service.sharedRequests();
    stepOfTwo(first, second, false);
  }
  ASSERT_EQ(server.service.sharedRequests(), before + 100) << "of 50 chunks each";
  const float weight = first.weights(9)[0];
  stepOfTwo(first, second, true);
  EXPECT_EQ(weight - first.weights(9)[0], 12.5f);
}

// The trainer may be a whole step ahead while the link has just entered an epoch.
TEST(PsSynchronizer, WhatIsAskedInAnEpochIsNotForgottenWithWhatWasAskedBefore) {
  PsServer server(10, 2);
  Worker first(server, 0);
  Worker second(server, 1);
  second.synchronizer.onView(server.activeView(2));
  ASSERT_TRUE(configureFailpoints("worker.entered=delay(400)", "worker-0").ok());
  std::thread link([&] { first.synchronizer.onView(server.activeView(2)); });
  std::thread trainer([&] { takesAStep(first); });
  link.join();
  ASSERT_TRUE(configureFailpoints("", "").ok());
  takesAStep(second);
  trainer.join();
}

// Counts what one thread asks.
class CountingClock : public Clock {
 public:
  TimePoint now() const override {
    if (std::this_thread::get_id() == whose) ++asked;
    return systemClock().now();
  }
  UnixMillis unixMillis() const override { return systemClock().unixMillis(); }
  const std::thread::id whose = std::this_thread::get_id();
  mutable std::atomic<int> asked = 0;
};

// It asks the time twice whenever it wakes: each fiftieth of a second, and when the step is over.
TEST(PsSynchronizer, ChunksOfAStepDoNotWakeTheTrainer) {
  const CountingClock clock;
  PsServer server(100, 1);
  Worker worker(server, 0, std::chrono::milliseconds(50), 0, clock);
  worker.synchronizer.onView(server.activeView(1));
  for (int step = 0; step < 3; ++step) {
    ASSERT_TRUE(worker.synchronizer.next().ok());
    worker.pushAll(1);
    clock.asked = 0;
    const TimePoint begin = systemClock().now();
    ASSERT_TRUE(worker.synchronizer.finish({1, 1}).ok());
    const auto turns = (systemClock().now() - begin) / std::chrono::milliseconds(20);
    EXPECT_LE(clock.asked.load(), 8 + 2 * turns) << "of 500 chunks";
  }
}

// A server's weights may go on where 16 bits cannot follow.
TEST(PsSynchronizer, WeightsBeyondFloat16EndTheJobByName) {
  PsServer server(1, 1, {}, 8, keys(), {}, false, 2, -1, ElementType::kFloat16);
  Worker worker(server, 0);
  worker.synchronizer.onView(server.activeView(1));
  const auto abort = [&] {
    v1::MemberReport report;
    worker.synchronizer.fillReport(report);
    return report.abort();
  };
  for (std::int64_t step = 0; step < 2; ++step) {
    const auto turn = worker.synchronizer.next();
    ASSERT_TRUE(turn.ok()) << turn.status();
    EXPECT_EQ(abort().reason(), "");
    worker.pushAll(40000);
    if (step > 0) break;
    EXPECT_TRUE(worker.synchronizer.finish({1.0, 1})->complete);
    EXPECT_THAT(worker.weights(0), Each(-40000.0f));
  }
  ASSERT_TRUE(eventually([&] { return !abort().reason().empty(); }, std::chrono::seconds(60)));
  EXPECT_EQ(abort().variable(), "v0");
  EXPECT_EQ(abort().step(), 2);
  EXPECT_EQ(abort().reason(), "weights are beyond 65,504, where training.wireType Float16 ends");
}

// All answers of a step wait until its last chunk is in: the window must not wait for them.
TEST(PsSynchronizer, AWindowOfOneIsEnoughWhenGradientsAreClipped) {
  constexpr int kSteps = 5;
  PsServer server(10, 3, [](ShardConfig& c) { c.clip_norm = 1e9; });
  std::vector<std::unique_ptr<Worker>> workers;
  for (std::uint32_t i = 0; i < 3; ++i) workers.push_back(std::make_unique<Worker>(server, i));
  std::vector<std::thread> threads;
  for (auto& worker : workers) {
    worker->synchronizer.onView(server.activeView(3));
    threads.emplace_back([&worker] {
      for (std::int64_t step = 0; step < kSteps; ++step) worker->step(step);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& worker : workers) {
    for (std::size_t v = 0; v < 10; ++v) {
      EXPECT_THAT(worker->weights(v), Each(-30.0f - 5.0f * static_cast<float>(v))) << v;
    }
  }
}

TEST(PsSynchronizer, TheStepsOutcomeHasTheNormBeforeClipping) {
  PsServer server(1, 1, [](ShardConfig& c) { c.clip_norm = 0.25; });
  Worker worker(server, 0);
  worker.synchronizer.onView(server.activeView(1));
  ASSERT_TRUE(worker.synchronizer.next().ok());
  worker.pushAll(3);
  const auto outcome = worker.synchronizer.finish({1, 1});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  ASSERT_TRUE(outcome->gradient_norm.has_value());
  EXPECT_DOUBLE_EQ(*outcome->gradient_norm, 3 * std::sqrt(40.0));
  EXPECT_THAT(worker.weights(0),
              Each(testing::FloatEq(static_cast<float>(-0.25 / std::sqrt(40.0)))));
}

TEST(PsSynchronizer, AStepIsResumedUnderTheNextEpoch) {
  PsServer server(10, 3);
  std::vector<std::unique_ptr<Worker>> workers;
  for (std::uint32_t i = 0; i < 3; ++i) workers.push_back(std::make_unique<Worker>(server, i));
  for (auto& worker : workers) worker->synchronizer.onView(server.activeView(3));
  std::vector<std::thread> threads;
  // Two workers push a step that waits for the third.
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&, i] { workers[static_cast<std::size_t>(i)]->step(0); });
  std::vector<ChunkAnswer> answers;
  server.shard.seal(2, answers);
  server.service.deliver(std::move(answers));
  ASSERT_TRUE(server.shard.open(2, planFor(0, 3), false, true).ok());
  v1::View next = server.activeView(3);
  next.set_sequence(2);
  next.mutable_epoch()->set_epoch(2);
  for (auto& worker : workers) worker->synchronizer.onView(next);
  threads.emplace_back([&] { workers[2]->step(0); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& worker : workers) EXPECT_THAT(worker->weights(9), Each(-2.0f - 9.0f));
}

// A membership in which the server is where nobody listens.
v1::Membership elsewhere(const PsServer& server, std::int64_t revision) {
  return membershipAt(server, revision, 1);
}

v1::View viewOf(const PsServer& server, std::int64_t revision, const std::string& address) {
  v1::View view = server.activeView(1);
  view.mutable_epoch()->set_revision(revision);
  view.mutable_epoch()->add_sources()->set_address(address);
  return view;
}

// The membership that the epoch began with never came: the one before it is here, or the one after,
// which does not name the server any more.
TEST(PsSynchronizer, AnEpochSaysWhereItsServersAre) {
  PsServer server(10, 1);
  Worker worker(server, 0);
  worker.synchronizer.setMembership(elsewhere(server, 5));
  worker.synchronizer.onView(viewOf(server, 6, server.address));
  worker.synchronizer.setMembership(elsewhere(server, 5));
  v1::Membership without;
  without.set_revision(7);
  worker.synchronizer.setMembership(without);
  takesAStep(worker);
}

TEST(PsSynchronizer, ANewerMembershipSaysIt) {
  PsServer server(10, 1);
  Worker worker(server, 0);
  worker.synchronizer.onView(viewOf(server, 6, "127.0.0.1:1"));
  v1::Membership newer = server.membership();
  newer.set_revision(7);
  worker.synchronizer.setMembership(newer);
  takesAStep(worker);
}

// All chunks, on ps-0 by the placement, are on a second server.
v1::View movedView(const PsServer& server) {
  v1::View view = server.activeView(1);
  v1::EpochMember* ps = view.mutable_epoch()->add_members();
  *ps = view.epoch().members(0);
  ps->mutable_id()->set_index(1);
  for (std::size_t c = 0; c < server.placement.chunks.size(); ++c)
    view.mutable_epoch()->add_chunk_ps(1);
  return view;
}

TEST(PsSynchronizer, BytesAreOfTheServerThatSentThem) {
  PsServer server(10, 1, {}, 8, keys(), {}, false, 2, 1);
  Worker worker(server, 0);
  v1::Membership membership = server.membership();
  membership.mutable_tasks(0)->mutable_id()->set_index(1);
  worker.synchronizer.setMembership(membership);
  worker.synchronizer.onView(movedView(server));
  takesAStep(worker);
  v1::RuntimeReport traffic;
  worker.synchronizer.traffic().fill(traffic);
  ASSERT_EQ(traffic.traffic_size(), 1) << traffic.ShortDebugString();
  EXPECT_EQ(traffic.traffic(0).peer().index(), 1u);
  EXPECT_EQ(traffic.traffic(0).received_bytes(), 2u * 1600);
  EXPECT_EQ(traffic.traffic(0).transmitted_bytes(), 1600u);
}

// Each refusal frees the window's only place for the next chunk.
TEST(PsSynchronizer, ManyRefusalsInARowNeedNoStack) {
  PsServer server(2000, 1);
  ASSERT_EQ(server.placement.chunks.size(), 10'000u);
  Worker worker(server, 0);
  worker.synchronizer.onView(movedView(server));
  EXPECT_THAT(worker.synchronizer.waitingFor(), testing::HasSubstr("ps-1 has no address yet"));
}

TEST(PsSynchronizer, AnEndInsteadOfAnAnswerWakesTheTrainer) {
  PsServer server(10, 2);
  Worker worker(server, 0);
  worker.synchronizer.onView(server.activeView(2));
  ASSERT_TRUE(worker.synchronizer.next().ok());
  worker.pushAll(1);
  v1::View failed = server.activeView(2);
  failed.set_sequence(2);
  failed.set_phase(v1::PHASE_FAILED);
  failed.set_failure("worker-1 saw NaN");
  std::thread view([&] { worker.synchronizer.onView(failed); });
  const auto outcome = worker.synchronizer.finish({1, 1});
  view.join();
  ASSERT_TRUE(outcome.ok());
  EXPECT_FALSE(outcome->complete);
  EXPECT_EQ(worker.synchronizer.next().status(), absl::FailedPreconditionError("worker-1 saw NaN"));
  EXPECT_TRUE(worker.synchronizer.over());
}

TEST(PsSynchronizer, CanGoWhileCallsAreInFlight) {
  PsServer server(10, 2);
  auto worker = std::make_unique<Worker>(server, 0, Duration(0));
  worker->synchronizer.onView(server.activeView(2));
  ASSERT_TRUE(worker->synchronizer.next().ok());
  worker->pushAll(1);  // held back for the other rank; repeated at once when given up
  worker.reset();
  EXPECT_EQ(server.shard.state().max_version(), 0);
}

}  // namespace
}  // namespace trainyard::runtime::ps
