// Workers with the synchronizer that is shipped, and the server that they push to.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <span>
#include <vector>

#include "runtime/ps/ps_synchronizer.h"
#include "tests/runtime/ps/rpc_bench.h"

namespace trainyard::runtime::ps {

// A worker with ten variables, i.e. 50 chunks, all zero.
class Worker {
 public:
  Worker(const PsServer& server, std::uint32_t index,
         Duration retry_delay = std::chrono::milliseconds(50), int near = 0,
         const Clock& clock = systemClock(),
         const std::function<void(PsSynchronizerOptions&)>& change = {})
      : weights_(server.placement.variables.size(), std::vector<float>(40, -77.0f)),
        synchronizer(changed(options(server, index, retry_delay), change), server.placement,
                     spans(), clock, [] {}) {
    synchronizer.setMembership(server.membership(near));
  }
  static PsSynchronizerOptions options(const PsServer& server, std::uint32_t index,
                                       Duration retry_delay) {
    PsSynchronizerOptions o;
    o.worker.job_uid = kJob;
    o.worker.index = index;
    o.worker.self = incarnation(1, 1);
    o.worker.evaluates = false;
    o.worker.ps_of_chunk.assign(server.placement.chunks.size(), 0);
    o.worker.window = 1;
    o.worker.retry_delay = retry_delay;
    o.access = {secretsOf(keys()), workerEnd(index)};
    o.patience = std::chrono::seconds(60);
    o.wire = server.wire;
    return o;
  }
  static PsSynchronizerOptions changed(PsSynchronizerOptions options,
                                       const std::function<void(PsSynchronizerOptions&)>& change) {
    if (change) change(options);
    return options;
  }
  std::vector<std::span<float>> spans() { return {weights_.begin(), weights_.end()}; }
  using Values = std::pmr::vector<float>;
  // Returns what the synchronizer holds.
  std::vector<std::shared_ptr<Values>> pushAll(
      float value, std::pmr::memory_resource* memory = std::pmr::new_delete_resource()) {
    std::vector<std::shared_ptr<Values>> pushed;
    for (int v = static_cast<int>(weights_.size()) - 1; v >= 0; --v) {
      pushed.push_back(std::make_shared<Values>(40, value + static_cast<float>(v), memory));
      synchronizer.push({v, std::span<const float>(*pushed.back()), pushed.back()});
    }
    return pushed;
  }
  // One step with gradient (rank + 1) (step + 1) + variable and loss rank + 1.
  void step(std::int64_t expected) {
    auto turn = synchronizer.next();
    ASSERT_TRUE(turn.ok()) << turn.status();
    ASSERT_EQ(turn->kind, Turn::Kind::kTrain);
    ASSERT_EQ(turn->step, expected);
    pushAll(static_cast<float>((turn->rank + 1) * (expected + 1)));
    auto outcome = synchronizer.finish({turn->rank + 1.0, 1});
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_TRUE(outcome->complete);
    EXPECT_DOUBLE_EQ(outcome->loss, 2.0);
  }
  const std::vector<float>& weights(std::size_t variable) const { return weights_[variable]; }

 private:
  std::vector<std::vector<float>> weights_;

 public:
  PsSynchronizer synchronizer;  // first to go
};

// A membership in which the server is at that port.
inline v1::Membership membershipAt(const PsServer& server, std::int64_t revision, int port) {
  v1::Membership membership = server.membership();
  membership.set_revision(revision);
  membership.mutable_tasks(0)->set_port(static_cast<std::uint32_t>(port));
  return membership;
}

inline void takesAStep(Worker& worker, float value = 1) {
  const auto turn = worker.synchronizer.next();
  ASSERT_TRUE(turn.ok()) << turn.status();
  worker.pushAll(value);
  const auto outcome = worker.synchronizer.finish({1.0, 1});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome->complete);
}

}  // namespace trainyard::runtime::ps
