// One suite for every implementation of runtime/train/synchronizer.h, so that the fake of the unit
// tests cannot drift from those over parameter servers and a ring. A test program links
// `synchronizer_conformance` and instantiates the suite.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/train/step_commit.h"
#include "runtime/train/synchronizer.h"

namespace trainyard::runtime::testing {

// Of the one worker of a job: variables, all zero at first, and what each step and evaluation is.
inline constexpr int kVariables = 2;
inline constexpr std::size_t kElements = 40;
inline constexpr int kSamples = 4;  // of each step
inline constexpr std::int64_t kSteps = 100;
inline constexpr std::int64_t kEvaluateEvery = 2;
// An epoch before the first, which beginEpoch() ends.
inline constexpr std::int64_t kFirstEpoch = 2;

// A job with one worker whose optimizer is plain descent with rate 1, and the coordinator's power
// over it. Used from one thread.
class SynchronizerHarness {
 public:
  virtual ~SynchronizerHarness() = default;
  virtual Synchronizer& synchronizer() = 0;
  // Where workers take the steps themselves.
  virtual StepCommit* commit() { return nullptr; }
  virtual std::span<float> weights(int variable) = 0;

  // Ends the epoch before, and begins one with what is held, at version `first_step`.
  virtual void beginEpoch(std::int64_t epoch, std::int64_t first_step) = 0;
  // The job is over in this way, at `step`.
  virtual void end(Turn::Kind kind, std::int64_t step) = 0;
  virtual void fail(const std::string& reason) = 0;

  // What the worker has said to the coordinator: "step|variable|reason" of what must end the job,
  // empty where there is nothing; and its newest score.
  virtual std::string aborted() const = 0;
  virtual std::optional<BatchScore> scored() const = 0;
};

struct SynchronizerParam {
  std::string name;
  std::function<std::unique_ptr<SynchronizerHarness>()> make;
};
inline std::string synchronizerName(const ::testing::TestParamInfo<SynchronizerParam>& info) {
  return info.param.name;
}

class SynchronizerConformance : public ::testing::TestWithParam<SynchronizerParam> {
 protected:
  void SetUp() override { harness_->beginEpoch(kFirstEpoch, 0); }
  Synchronizer& synchronizer() { return harness_->synchronizer(); }
  StatusOr<Turn> next() { return synchronizer().next(); }
  // Variable v's gradient: the sum of samples that bring `value` + v each.
  void pushAll(float value);
  // Both variables are `value` and -`per_variable` times their number.
  void expectWeights(float value, float per_variable);
  // Asks for step `step` and takes it, again where it did not count.
  void takeStep(std::int64_t step, float value);

  const std::unique_ptr<SynchronizerHarness> harness_ = GetParam().make();
};

// Those where workers take the steps themselves: a caller with an optimizer of its own.
class StepCommitConformance : public SynchronizerConformance {
 protected:
  StepCommit& commit() { return *harness_->commit(); }
  // Another rule than the harness's: rate 2.
  void updateTwice(const SummedStep& summed);
};

}  // namespace trainyard::runtime::testing
