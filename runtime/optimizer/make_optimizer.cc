#include <array>
#include <cmath>
#include <string_view>

#include "base/core/check.h"
#include "fmt/format.h"
#include "runtime/optimizer/internal/rules.h"
#include "runtime/optimizer/optimizer.h"

namespace trainyard::runtime {
namespace {

// What a number may be, after its conversion to float32.
enum class Range { kNotNegative, kPositive, kBelowOne };

const char* describe(Range range) {
  switch (range) {
    case Range::kNotNegative:
      return "a finite number, 0 or more";
    case Range::kPositive:
      return "a finite number above 0";
    case Range::kBelowOne:
      return "a number from 0 to below 1";
  }
  TY_CHECK(false, "the ranges above are all there are");
}

bool within(Range range, float x) {
  if (!std::isfinite(x)) return false;
  if (range == Range::kPositive) return x > 0;
  return x >= 0 && (range != Range::kBelowOne || x < 1);
}

// Reads the fields of one spec and remembers the first that is wrong.
class Reader {
 public:
  void check(std::string_view field, double value, Range range) {
    if (!status_.ok() || within(range, static_cast<float>(value))) return;
    status_ = invalidInput(fmt::format("optimizer.{}", field),
                           fmt::format("{}, expected {}", value, describe(range)));
  }
  float number(std::string_view field, bool present, double value, double absent, Range range) {
    const double used = present ? value : absent;
    check(field, used, range);
    return static_cast<float>(used);
  }
  // A parameter that the rule would silently ignore is a mistake in the job.
  void refuse(std::string_view field, bool in_use, std::string_view rule) {
    if (!status_.ok() || !in_use) return;
    status_ = invalidInput(fmt::format("optimizer.{}", field),
                           fmt::format("{} has no such parameter", rule));
  }
  const Status& status() const { return status_; }

 private:
  Status status_;
};

struct RuleFields {
  std::string_view name;
  std::string_view fields;  // separated by spaces
};
constexpr std::array<RuleFields, 7> kRules = {{
    {"SGD", ""},
    {"Momentum", "momentum nesterov"},
    {"Adagrad", "initialAccumulator"},
    {"Adadelta", "rho epsilon"},
    {"Adam", "beta1 beta2 epsilon"},
    {"RMSProp", "momentum rho epsilon centered"},
    {"Ftrl", "initialAccumulator l1 l2 l2Shrinkage"},
}};

void refuseForeign(const v1::OptimizerSpec& spec, const RuleFields& rule, Reader& read) {
  const std::array<std::pair<std::string_view, bool>, 11> set = {{
      {"momentum", spec.momentum() != 0},
      {"nesterov", spec.nesterov()},
      {"rho", spec.rho() != 0},
      {"epsilon", spec.epsilon() != 0},
      {"beta1", spec.beta1() != 0},
      {"beta2", spec.beta2() != 0},
      {"initialAccumulator", spec.initial_accumulator() != 0},
      {"centered", spec.centered()},
      {"l1", spec.l1() != 0},
      {"l2", spec.l2() != 0},
      {"l2Shrinkage", spec.l2_shrinkage() != 0},
  }};
  for (const auto& [field, in_use] : set) {
    if (rule.fields.find(field) == std::string_view::npos) read.refuse(field, in_use, rule.name);
  }
}

// What every rule has.
void checkCommon(const v1::OptimizerSpec& spec, Reader& read) {
  read.number("learningRate", spec.has_learning_rate(), spec.learning_rate(), kDefaultLearningRate,
              Range::kNotNegative);
  read.check("warmupSteps", static_cast<double>(spec.warmup_steps()), Range::kNotNegative);
  read.check("weightDecay", spec.weight_decay(), Range::kNotNegative);
  if (spec.has_clip_norm()) read.check("clipNorm", spec.clip_norm(), Range::kPositive);
  if (!spec.has_decay()) return;
  read.check("decay.every", static_cast<double>(spec.decay().every()), Range::kPositive);
  read.check("decay.rate", spec.decay().rate(), Range::kPositive);
}

float momentumOf(const v1::OptimizerSpec& spec, double absent, Reader& read) {
  return read.number("momentum", spec.has_momentum(), spec.momentum(), absent, Range::kNotNegative);
}
float rhoOf(const v1::OptimizerSpec& spec, double absent, Reader& read) {
  return read.number("rho", spec.has_rho(), spec.rho(), absent, Range::kBelowOne);
}
float epsilonOf(const v1::OptimizerSpec& spec, double absent, Reader& read) {
  return read.number("epsilon", spec.has_epsilon(), spec.epsilon(), absent, Range::kNotNegative);
}

float accumulatorOf(const v1::OptimizerSpec& spec, Reader& read) {
  return read.number("initialAccumulator", spec.has_initial_accumulator(),
                     spec.initial_accumulator(), 0.1, Range::kPositive);
}

// The weight follows from the slots, so that what is taken off it beforehand would be lost.
std::unique_ptr<Optimizer> makeFtrl(const v1::OptimizerSpec& spec, internal::RuleCommon common,
                                    Reader& read) {
  read.refuse("weightDecay", spec.weight_decay() != 0, "Ftrl");
  if (spec.has_learning_rate()) read.check("learningRate", spec.learning_rate(), Range::kPositive);
  const auto term = [&](std::string_view field, double value) {
    return read.number(field, /*present=*/true, value, 0, Range::kNotNegative);
  };
  internal::FtrlTerms terms;
  terms.l1 = term("l1", spec.l1());
  terms.l2 = term("l2", spec.l2());
  terms.l2_shrinkage = term("l2Shrinkage", spec.l2_shrinkage());
  return internal::makeFtrl(common, accumulatorOf(spec, read), terms);
}

std::unique_ptr<Optimizer> makeAdam(const v1::OptimizerSpec& spec, internal::RuleCommon common,
                                    Reader& read) {
  const float beta1 = read.number("beta1", spec.has_beta1(), spec.beta1(), 0.9, Range::kBelowOne);
  const float beta2 = read.number("beta2", spec.has_beta2(), spec.beta2(), 0.999, Range::kBelowOne);
  return internal::makeAdam(common, beta1, beta2, epsilonOf(spec, 1e-8, read));
}

std::unique_ptr<Optimizer> makeRule(const v1::OptimizerSpec& spec, internal::RuleCommon common,
                                    Reader& read) {
  const std::string& name = spec.name();
  if (name == "SGD") return internal::makeSgd(common);
  if (name == "Momentum") {
    return internal::makeMomentum(common, momentumOf(spec, 0.9, read), spec.nesterov());
  }
  if (name == "Adagrad") return internal::makeAdagrad(common, accumulatorOf(spec, read));
  if (name == "Adadelta") {
    return internal::makeAdadelta(common, rhoOf(spec, 0.95, read), epsilonOf(spec, 1e-8, read));
  }
  if (name == "Adam") return makeAdam(spec, common, read);
  if (name == "Ftrl") return makeFtrl(spec, common, read);
  TY_CHECK(name == "RMSProp", "the table of rules knows this name");
  return internal::makeRmsProp(common, rhoOf(spec, 0.9, read), momentumOf(spec, 0, read),
                               epsilonOf(spec, 1e-10, read), spec.centered());
}

}  // namespace

StatusOr<std::unique_ptr<Optimizer>> internal::makeOptimizer(const v1::OptimizerSpec& spec,
                                                             Isa isa) {
  for (const RuleFields& rule : kRules) {
    if (rule.name != spec.name()) continue;
    Reader read;
    refuseForeign(spec, rule, read);
    checkCommon(spec, read);
    auto optimizer = makeRule(spec, {isa, static_cast<float>(spec.weight_decay())}, read);
    if (!read.status().ok()) return read.status();
    return optimizer;
  }
  return invalidInput(
      "optimizer.name",
      fmt::format("\"{}\", expected SGD, Momentum, Adagrad, Adadelta, Adam, RMSProp or Ftrl",
                  spec.name()));
}

StatusOr<std::unique_ptr<Optimizer>> makeOptimizer(const v1::OptimizerSpec& spec) {
  return internal::makeOptimizer(spec, internal::bestIsa());
}

}  // namespace trainyard::runtime
