// A program's host with a job of one worker that is a few lines of memory, and a program that is a
// text.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "base/process/files.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "runtime/program/program_host.h"
#include "tests/base/process/temp_dir.h"
#include "tests/runtime/train/fake_synchronizer.h"

namespace trainyard::runtime {

using session::Declaration;
using session::SessionMemory;

inline const Declaration kHosted{
    .samples = 8,
    .eval_samples = 5,
    .variables = {{"w", {2}}, {"seen", {}, ElementType::kInt64, false}, {"b", {}}}};

// A job that ends when it is left.
class FakeJob final : public ProgramJob {
 public:
  StatusOr<Member> make(const DeclaredModel& made, std::vector<std::span<float>> weights,
                        Hosted given) override {
    hosted = std::move(given);
    model = made;
    synchronizer = std::make_unique<FakeSynchronizer>(
        FakeSynchronizer::Options{.samples = 2, .evaluate_every = 1, .wait = [this] { in_next(); }},
        std::move(weights));
    return Member{.synchronizer = synchronizer.get(), .commit = synchronizer.get()};
  }
  void join() override { joined = true; }
  std::vector<std::int64_t> keepDue(std::int64_t version, std::int64_t,
                                    const std::function<bool(std::int64_t)>&) override {
    if (version == keep_at) return {version};
    return {};
  }
  std::vector<std::int64_t> keepMissed(std::int64_t, std::int64_t,
                                       const std::function<bool(std::int64_t)>&) override {
    return missed;
  }
  Status leave(const Status& end) override {
    ++left;
    return end;
  }

  std::function<void()> in_next = [] {};  // and in finish() and sum()
  std::optional<DeclaredModel> model;
  std::unique_ptr<FakeSynchronizer> synchronizer;
  Hosted hosted;
  std::int64_t keep_at = -1;
  std::vector<std::int64_t> missed;
  bool joined = false;
  int left = 0;
};

// Its state is a text.
class FakeProgram final : public session::WaitingProgram {
 public:
  StatusOr<session::StateMemory> save(std::int64_t version) override {
    saved.push_back(version);
    if (!failure.ok()) return failure;
    TY_ASSIGN_OR_RETURN(session::StateMemory memory, session::StateMemory::create(state.size()));
    std::ranges::copy(std::as_bytes(std::span(state)), memory.bytes().begin());
    return memory;
  }
  Status load(std::int64_t version, const session::StateMemory& memory) override {
    loaded.push_back(version);
    const auto bytes = memory.bytes();
    state.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return failure;
  }

  std::string state = "new";
  Status failure;
  std::vector<std::int64_t> saved;
  std::vector<std::int64_t> loaded;
};

class Steps final : public TrainObserver {
 public:
  Status onStep(const StepRecord& record) override {
    records.push_back(record);
    return absl::OkStatus();
  }
  std::vector<StepRecord> records;
};

class ProgramHostTest : public testing::Test {
 protected:
  std::unique_ptr<ProgramHost> hostOf(bool chief, session::Cancelled cancelled = {}) {
    return std::make_unique<ProgramHost>(
        ProgramHost::Options{.chief = chief,
                             .workers_update = workers_update_,
                             .checkpoint_dir = dir_.path().string(),
                             .kept = 2,
                             .seed = 1,
                             .cancelled = std::move(cancelled)},
        job_, steps_, systemClock());
  }
  // As the program does it: declares, and puts its first weights in place.
  void declare(ProgramHost& host, float first, const Declaration& model = kHosted) {
    const auto place = host.declare(model);
    ASSERT_TRUE(place.ok()) << place.status();
    memory_.emplace(*SessionMemory::open(model, *place));
    floats(0)[0] = first;
  }
  std::span<float> floats(std::size_t variable) {
    const auto value = memory_->value(variable);
    return {reinterpret_cast<float*>(value.data()), value.size() / sizeof(float)};
  }
  void push(ProgramHost& host, float gradient) {
    for (const std::uint32_t variable : {2, 0}) {
      for (float& value : memory_->gradient(variable)) value = gradient;
      host.push(variable);
    }
  }
  StatusOr<session::Outcome> step(ProgramHost& host, float gradient) {
    push(host, gradient);
    return host.finish({.loss_sum = 6, .samples = 2});
  }

  std::string stateFile(std::int64_t step) {
    return (dir_.path() / fmt::format("program-state.step-{}.bin", step)).string();
  }

  TempDir dir_;
  FakeProgram program_;
  FakeJob job_;
  Steps steps_;
  std::optional<SessionMemory> memory_;
  bool workers_update_ = true;
};

inline Declaration ownUpdate() {
  Declaration model = kHosted;
  model.own_update = true;
  return model;
}

inline Declaration withState() {
  Declaration model = kHosted;
  model.has_state = true;
  return model;
}

}  // namespace trainyard::runtime
