#include "runtime/optimizer/optimizer.h"

#include <bit>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "base/core/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/optimizer/internal/rules.h"
#include "runtime/optimizer/internal/running_power.h"

namespace trainyard::runtime {
namespace {

using internal::Isa;
using testing::HasSubstr;

v1::OptimizerSpec named(const std::string& name) {
  v1::OptimizerSpec spec;
  spec.set_name(name);
  spec.set_learning_rate(0.01);
  return spec;
}

std::vector<v1::OptimizerSpec> allRules() {
  std::vector<v1::OptimizerSpec> specs;
  for (const char* name : {"SGD", "Momentum", "Adagrad", "Adadelta", "Adam", "RMSProp"}) {
    specs.push_back(named(name));
  }
  specs.push_back(named("Momentum"));
  specs.back().set_nesterov(true);
  specs.push_back(named("RMSProp"));
  specs.back().set_centered(true);
  specs.back().set_momentum(0.9);
  const std::size_t plain = specs.size();
  for (std::size_t i = 0; i < plain; ++i) {
    specs.push_back(specs[i]);
    specs.back().set_weight_decay(0.3);
  }
  specs.push_back(named("Ftrl"));
  specs.back().set_l1(0.05);
  specs.back().set_l2(0.1);
  specs.back().set_l2_shrinkage(0.02);
  return specs;
}

// The weights and slots of one chunk.
struct State {
  std::vector<float> w;
  std::vector<std::vector<float>> slots;
  bool operator==(const State&) const = default;
};

State startState(const Optimizer& optimizer, std::int64_t n) {
  State state;
  Rng rng(n);
  for (std::int64_t i = 0; i < n; ++i) state.w.push_back(static_cast<float>(rng.unit() - 0.5));
  for (std::size_t k = 0; k < optimizer.slots().size(); ++k) {
    state.slots.emplace_back(n, optimizer.initialSlot(k));
  }
  return state;
}

std::vector<float> gradientOf(std::int64_t step, std::int64_t n) {
  Rng rng(1000 + step);
  std::vector<float> g;
  for (std::int64_t i = 0; i < n; ++i) g.push_back(static_cast<float>(rng.unit() - 0.4));
  return g;
}

// One update of elements [begin, end).
void applyRange(const Optimizer& optimizer, std::int64_t step, State& state,
                std::span<const float> g, std::int64_t begin, std::int64_t end) {
  std::vector<std::span<float>> slots;
  for (auto& slot : state.slots) slots.push_back(std::span(slot).subspan(begin, end - begin));
  const auto w = std::span(state.w).subspan(begin, end - begin);
  optimizer.apply({step, 0.01f}, w, g.subspan(begin, end - begin), w, slots);
}

State trainSteps(const Optimizer& optimizer, std::int64_t n, std::int64_t cut) {
  State state = startState(optimizer, n);
  for (std::int64_t step = 0; step < 5; ++step) {
    const std::vector<float> g = gradientOf(step, n);
    for (std::int64_t begin = 0; begin < n; begin += cut) {
      applyRange(optimizer, step, state, g, begin, std::min(n, begin + cut));
    }
  }
  return state;
}

TEST(Optimizers, EveryIsaAndEveryCutGiveTheSameBits) {
  constexpr std::int64_t kElements = 131;
  for (const v1::OptimizerSpec& spec : allRules()) {
    const auto scalar = internal::makeOptimizer(spec, Isa::kBaseline);
    ASSERT_TRUE(scalar.ok()) << scalar.status();
    // Pieces of one element never reach a vector loop: the scalar bits.
    const State expected = trainSteps(**scalar, kElements, 1);
    EXPECT_NE(expected.w, startState(**scalar, kElements).w);
    for (const Isa isa : internal::supportedIsas()) {
      const auto optimizer = internal::makeOptimizer(spec, isa);
      ASSERT_TRUE(optimizer.ok());
      for (const std::int64_t cut : {3, 8, 17, 33, 131}) {
        EXPECT_EQ(trainSteps(**optimizer, kElements, cut), expected)
            << spec.name() << " on " << internal::isaName(isa) << " in pieces of " << cut;
      }
    }
  }
}

TEST(Optimizers, NewWeightsMayReplaceTheGradientOrStandApart) {
  constexpr std::int64_t kElements = 77;
  for (const v1::OptimizerSpec& spec : allRules()) {
    const auto optimizer = makeOptimizer(spec);
    ASSERT_TRUE(optimizer.ok()) << optimizer.status();
    const std::vector<float> g = gradientOf(0, kElements);
    const auto run = [&](State& state, std::span<const float> gradient, std::span<float> out) {
      const std::vector<std::span<float>> slots(state.slots.begin(), state.slots.end());
      (*optimizer)->apply({0, 0.01f}, state.w, gradient, out, slots);
    };
    State apart = startState(**optimizer, kElements);
    const std::vector<float> before = apart.w;
    std::vector<float> separate(kElements);
    run(apart, g, separate);
    EXPECT_EQ(apart.w, before);

    State over_gradient = startState(**optimizer, kElements);
    std::vector<float> buffer = g;
    run(over_gradient, buffer, buffer);
    EXPECT_EQ(buffer, separate) << spec.name();
    EXPECT_EQ(over_gradient.slots, apart.slots);

    State over_weights = startState(**optimizer, kElements);
    run(over_weights, g, over_weights.w);
    EXPECT_EQ(over_weights.w, separate) << spec.name();
  }
}

TEST(Optimizers, SlotsHaveTensorFlowsNamesAndFirstValues) {
  const auto slotsOf = [](const v1::OptimizerSpec& spec) {
    const auto optimizer = makeOptimizer(spec);
    std::vector<std::pair<std::string, float>> out;
    for (std::size_t k = 0; k < (*optimizer)->slots().size(); ++k) {
      out.emplace_back((*optimizer)->slots()[k], (*optimizer)->initialSlot(k));
    }
    return out;
  };
  using Slots = std::vector<std::pair<std::string, float>>;
  EXPECT_EQ(slotsOf(named("SGD")), Slots{});
  EXPECT_EQ(slotsOf(named("Momentum")), (Slots{{"momentum", 0}}));
  EXPECT_EQ(slotsOf(named("Adagrad")), (Slots{{"accumulator", 0.1f}}));
  EXPECT_EQ(slotsOf(named("Adadelta")), (Slots{{"accum", 0}, {"accum_update", 0}}));
  EXPECT_EQ(slotsOf(named("Adam")), (Slots{{"m", 0}, {"v", 0}}));
  EXPECT_EQ(slotsOf(named("RMSProp")), (Slots{{"rms", 1}, {"momentum", 0}}));
  EXPECT_EQ(slotsOf(named("Ftrl")), (Slots{{"accum", 0.1f}, {"linear", 0}}));
  v1::OptimizerSpec centered = named("RMSProp");
  centered.set_centered(true);
  EXPECT_EQ(slotsOf(centered), (Slots{{"rms", 1}, {"momentum", 0}, {"mg", 0}}));
}

// What makes models of many ids small: no weight without evidence for it.
TEST(Optimizers, FtrlsWeightsAreZeroUntilL1IsOvercome) {
  v1::OptimizerSpec spec = named("Ftrl");
  spec.set_learning_rate(0.5);
  spec.set_l1(2);
  const auto optimizer = makeOptimizer(spec);
  std::vector<float> w = {0};
  std::vector<float> accum = {(*optimizer)->initialSlot(0)};
  std::vector<float> linear = {(*optimizer)->initialSlot(1)};
  const std::vector<std::span<float>> slots = {accum, linear};
  const std::vector<float> g = {-0.75F};
  for (const bool zero : {true, true, false}) {
    (*optimizer)->apply({0, 0.5F}, w, g, w, slots);
    EXPECT_EQ(w[0] == 0, zero);
  }
  EXPECT_GT(w[0], 0);
}

TEST(Optimizers, AMomentumThatDecaysEndsAtZero) {
  const auto optimizer = makeOptimizer(named("Momentum"));
  std::vector<float> w = {1};
  std::vector<float> slot = {std::numeric_limits<float>::min()};
  const std::vector<float> g = {0};
  const std::vector<std::span<float>> slots = {slot};
  (*optimizer)->apply({0, 0.01f}, w, g, w, slots);
#if defined(__x86_64__)
  EXPECT_EQ(std::bit_cast<std::uint32_t>(slot[0]), 0u);
#endif
  EXPECT_EQ(w[0], 1);
}

// The definition, in two passes of plain float32: the weights shrink, then the rule takes its step.
TEST(Optimizers, WeightDecayComesBeforeTheRuleAndReachesNoSlot) {
  constexpr std::int64_t kElements = 131;
  constexpr float kDecay = 0.3f;
  constexpr float kRate = 0.01f;  // of applyRange()
  for (v1::OptimizerSpec spec : allRules()) {
    if (spec.weight_decay() == 0) continue;
    const auto decaying = makeOptimizer(spec);
    spec.clear_weight_decay();
    const auto plain = makeOptimizer(spec);
    ASSERT_TRUE(decaying.ok() && plain.ok());
    State want = startState(**plain, kElements);
    State have = startState(**decaying, kElements);
    for (std::int64_t step = 0; step < 5; ++step) {
      const std::vector<float> g = gradientOf(step, kElements);
      for (float& w : want.w) {
        volatile float product = w * kDecay;  // volatile: every rounding happens
        product = product * kRate;
        w = w - product;
      }
      applyRange(**plain, step, want, g, 0, kElements);
      applyRange(**decaying, step, have, g, 0, kElements);
      ASSERT_EQ(have, want) << spec.name() << " step " << step;
    }
  }
}

TEST(Optimizers, WithoutAGradientWeightDecayAloneShrinksTheWeights) {
  v1::OptimizerSpec spec = named("SGD");
  spec.set_weight_decay(0.5);
  const auto optimizer = makeOptimizer(spec);
  ASSERT_TRUE(optimizer.ok()) << optimizer.status();
  std::vector<float> w = {4, -2, 0, -0.0f};
  const std::vector<float> g(4);
  (*optimizer)->apply({0, 0.25f}, w, g, w, {});
  EXPECT_THAT(w, testing::ElementsAre(3.5f, -1.75f, 0, 0));
}

TEST(RunningPower, IsAFunctionOfItsArgument) {
  for (const float base : {0.9f, 0.999f, 0.0f, 0.99999f}) {
    constexpr std::int64_t kPowers = 5000;
    std::vector<float> naive = {1};
    for (std::int64_t n = 1; n <= kPowers; ++n)
      naive.push_back(n == 1 ? base : naive.back() * base);
    internal::RunningPower power(base);
    EXPECT_EQ(power.at(1), base);
    EXPECT_EQ(power.at(2049), naive[2049]);
    Rng rng(7);
    for (int i = 0; i < 2000; ++i) {
      const auto n = static_cast<std::int64_t>(1 + rng.below(kPowers));
      ASSERT_EQ(power.at(n), naive[n]) << base << " to the " << n;
      ASSERT_EQ(power.at(n), naive[n]);
      const std::int64_t next = std::min(n + 1, kPowers);
      ASSERT_EQ(power.at(next), naive[next]);
    }
  }
}

TEST(RunningPower, ThreadsAgree) {
  internal::RunningPower shared(0.999f);
  internal::RunningPower alone(0.999f);
  std::vector<std::vector<float>> seen(4);
  {
    std::vector<std::jthread> threads;
    for (auto& mine : seen) {
      threads.emplace_back([&] {
        for (std::int64_t n = 1; n < 4000; n += 3) mine.push_back(shared.at(n));
      });
    }
  }
  std::vector<float> expected;
  for (std::int64_t n = 1; n < 4000; n += 3) expected.push_back(alone.at(n));
  for (const auto& mine : seen) EXPECT_EQ(mine, expected);
}

std::string errorOf(const v1::OptimizerSpec& spec) {
  const auto optimizer = makeOptimizer(spec);
  if (optimizer.ok()) return "accepted";
  EXPECT_EQ(optimizer.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(optimizer.status().message());
}

TEST(MakeOptimizer, NamesTheFieldThatIsWrong) {
  using Spec = v1::OptimizerSpec;
  struct Case {
    const char* rule;
    void (*change)(Spec&);
    const char* message;
  };
  const std::vector<Case> cases = {
      {"Sgd", [](Spec&) {}, "optimizer.name: \"Sgd\", expected SGD, Momentum"},
      {"SGD", [](Spec& s) { s.set_learning_rate(-1); }, "optimizer.learningRate: -1, expected"},
      {"SGD", [](Spec& s) { s.set_learning_rate(std::nan("")); }, "optimizer.learningRate: nan"},
      {"SGD", [](Spec& s) { s.set_learning_rate(1e39); }, "optimizer.learningRate: 1e+39"},
      {"SGD", [](Spec& s) { s.set_momentum(0.9); },
       "optimizer.momentum: SGD has no such parameter"},
      {"Adam", [](Spec& s) { s.set_rho(0.9); }, "optimizer.rho: Adam has no such parameter"},
      {"Adam", [](Spec& s) { s.set_beta1(1); }, "optimizer.beta1: 1, expected a number from 0"},
      // 1 in float32, although below 1 in double.
      {"Adam", [](Spec& s) { s.set_beta2(0.99999999999); }, "optimizer.beta2: "},
      {"RMSProp", [](Spec& s) { s.set_rho(1.5); }, "optimizer.rho: 1.5, expected a number from 0"},
      {"RMSProp", [](Spec& s) { s.set_epsilon(-1e-9); }, "optimizer.epsilon: -1e-09, expected"},
      {"Adagrad", [](Spec& s) { s.set_initial_accumulator(0); },
       "optimizer.initialAccumulator: 0,"},
      {"Momentum", [](Spec& s) { s.set_centered(true); }, "optimizer.centered: Momentum has no"},
      {"Adagrad", [](Spec& s) { s.set_l1(0.1); }, "optimizer.l1: Adagrad has no such parameter"},
      {"Ftrl", [](Spec& s) { s.set_l2(-0.1); }, "optimizer.l2: -0.1, expected a finite"},
      {"Ftrl", [](Spec& s) { s.set_weight_decay(0.1); }, "optimizer.weightDecay: Ftrl has no"},
      {"Ftrl", [](Spec& s) { s.set_learning_rate(0); }, "optimizer.learningRate: 0, expected"},
      {"SGD", [](Spec& s) { s.set_weight_decay(-0.1); }, "optimizer.weightDecay: -0.1, expected"},
      {"SGD", [](Spec& s) { s.set_warmup_steps(-1); }, "optimizer.warmupSteps: -1, expected"},
      {"SGD", [](Spec& s) { s.set_clip_norm(0); }, "optimizer.clipNorm: 0, expected a finite"},
      // 0 in float32, although above 0 in double.
      {"SGD", [](Spec& s) { s.set_clip_norm(1e-60); }, "optimizer.clipNorm: 1e-60, expected"},
      {"SGD", [](Spec& s) { s.mutable_decay()->set_rate(0.5); }, "optimizer.decay.every: 0,"},
      {"SGD", [](Spec& s) { s.mutable_decay()->set_every(5); }, "optimizer.decay.rate: 0,"},
  };
  for (const Case& c : cases) {
    Spec spec = named(c.rule);
    c.change(spec);
    EXPECT_THAT(errorOf(spec), HasSubstr(c.message));
  }
}

TEST(MakeOptimizer, ZeroOfAnotherRuleIsAbsent) {
  v1::OptimizerSpec spec = named("SGD");
  spec.set_momentum(0);
  spec.set_nesterov(false);
  spec.set_centered(false);
  EXPECT_EQ(errorOf(spec), "accepted");
}

TEST(LearningRate, ConstantAndDefault) {
  v1::OptimizerSpec spec;
  EXPECT_EQ(LearningRate(spec).at(5), 0.001f);
  spec.set_learning_rate(0.25);
  EXPECT_EQ(LearningRate(spec).at(0), 0.25f);
  EXPECT_EQ(LearningRate(spec).at(1'000'000), 0.25f);
}

TEST(LearningRate, StaircaseHoldsBetweenSteps) {
  v1::OptimizerSpec spec;
  spec.set_learning_rate(1);
  spec.mutable_decay()->set_every(10);
  spec.mutable_decay()->set_rate(0.5);
  EXPECT_EQ(LearningRate(spec).at(9), std::pow(0.5f, 0.9f));
  spec.mutable_decay()->set_staircase(true);
  EXPECT_EQ(LearningRate(spec).at(9), 1);
  EXPECT_EQ(LearningRate(spec).at(10), 0.5f);
  EXPECT_EQ(LearningRate(spec).at(29), 0.25f);
}

TEST(LearningRate, WarmUpClimbsByTheSameAmountEachStep) {
  v1::OptimizerSpec spec;
  spec.set_learning_rate(0.5);
  spec.set_warmup_steps(4);
  const LearningRate rate(spec);
  EXPECT_EQ(rate.at(0), 0.125f);
  EXPECT_EQ(rate.at(1), 0.25f);
  EXPECT_EQ(rate.at(2), 0.375f);
  for (const std::int64_t step : {3, 4, 1000}) EXPECT_EQ(rate.at(step), 0.5f) << step;
  for (const std::int64_t none : {0, 1}) {
    spec.set_warmup_steps(none);
    EXPECT_EQ(LearningRate(spec).at(0), 0.5f) << none;
  }
}

TEST(LearningRate, WarmUpScalesTheScheduleAndThenLeavesItAlone) {
  v1::OptimizerSpec spec;
  spec.set_learning_rate(0.3);
  spec.mutable_decay()->set_every(7);
  spec.mutable_decay()->set_rate(0.9);
  const LearningRate schedule(spec);
  spec.set_warmup_steps(30);
  const LearningRate rate(spec);
  for (std::int64_t step = 0; step < 100; ++step) {
    volatile float factor = static_cast<float>(step + 1) / 30.0f;  // rounded before the product
    const float want = step < 29 ? schedule.at(step) * factor : schedule.at(step);
    EXPECT_EQ(rate.at(step), want) << step;
  }
}

}  // namespace
}  // namespace trainyard::runtime
