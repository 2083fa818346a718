// Our rules against TensorFlow's own numbers: golden/golden.txt, made by golden/make_golden.py.
#include <bit>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "runtime/optimizer/optimizer.h"

namespace trainyard::runtime {
namespace {

using Words = std::vector<float>;

struct RuleRecord {
  std::string title;
  v1::OptimizerSpec spec;
  std::vector<Words> weights;          // after each step
  std::map<std::string, Words> slots;  // after the last
};

struct ScheduleRecord {
  std::string title;
  v1::OptimizerSpec spec;
  std::vector<std::pair<std::int64_t, float>> rates;
};

struct Golden {
  Words initial;
  std::vector<Words> gradients;
  std::vector<RuleRecord> rules;
  std::vector<ScheduleRecord> schedules;
};

Words readWords(std::istream& in) {
  Words out;
  for (std::string word; in >> word;) {
    std::uint32_t bits = 0;
    std::from_chars(word.data(), word.data() + word.size(), bits, 16);
    out.push_back(std::bit_cast<float>(bits));
  }
  return out;
}

void setParameter(const std::string& key, double value, v1::OptimizerSpec& spec) {
  if (key == "learning_rate") return spec.set_learning_rate(value);
  if (key == "momentum") return spec.set_momentum(value);
  if (key == "nesterov") return spec.set_nesterov(value != 0);
  if (key == "rho") return spec.set_rho(value);
  if (key == "epsilon") return spec.set_epsilon(value);
  if (key == "beta1") return spec.set_beta1(value);
  if (key == "beta2") return spec.set_beta2(value);
  if (key == "initial_accumulator") return spec.set_initial_accumulator(value);
  if (key == "centered") return spec.set_centered(value != 0);
  if (key == "l1") return spec.set_l1(value);
  if (key == "l2") return spec.set_l2(value);
  if (key == "l2_shrinkage") return spec.set_l2_shrinkage(value);
  if (key == "weight_decay") return spec.set_weight_decay(value);
  if (key == "every") return spec.mutable_decay()->set_every(static_cast<std::int64_t>(value));
  if (key == "rate") return spec.mutable_decay()->set_rate(value);
  if (key == "staircase") return spec.mutable_decay()->set_staircase(value != 0);
  ADD_FAILURE() << "golden.txt has an unknown parameter " << key;
}

v1::OptimizerSpec readSpec(const std::string& name, std::istream& in) {
  v1::OptimizerSpec spec;
  spec.set_name(name);
  for (std::string word; in >> word;) {
    const std::size_t equals = word.find('=');
    setParameter(word.substr(0, equals), std::stod(word.substr(equals + 1)), spec);
  }
  return spec;
}

Golden readGolden() {
  Golden golden;
  std::ifstream file(GOLDEN_FILE);
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string kind;
    in >> kind;
    std::string name;
    if (kind == "initial") {
      golden.initial = readWords(in);
    } else if (kind == "gradient") {
      golden.gradients.push_back(readWords(in));
    } else if (kind == "rule") {
      in >> name;
      golden.rules.push_back({line.substr(5), readSpec(name, in), {}, {}});
    } else if (kind == "w") {
      golden.rules.back().weights.push_back(readWords(in));
    } else if (kind == "slot") {
      in >> name;
      golden.rules.back().slots[name] = readWords(in);
    } else if (kind == "schedule") {
      golden.schedules.push_back({line.substr(9), readSpec("SGD", in), {}});
    } else if (kind == "rate") {
      std::int64_t step = 0;
      in >> step;
      golden.schedules.back().rates.emplace_back(step, readWords(in).at(0));
    }
  }
  return golden;
}

struct Difference {
  int unequal = 0;   // elements whose bits differ
  double worst = 0;  // largest |d| / (1e-6 |w| + 2e-7): above 1 is too much
};

void compare(const Words& ours, const Words& theirs, Difference& difference) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(ours[i]) == std::bit_cast<std::uint32_t>(theirs[i])) continue;
    ++difference.unequal;
    const double d = std::abs(static_cast<double>(ours[i]) - theirs[i]);
    const double allowed = 1e-6 * std::abs(static_cast<double>(theirs[i])) + 2e-7;
    difference.worst = std::max(difference.worst, d / allowed);
    EXPECT_LE(d, allowed) << "element " << i << ": " << ours[i] << ", TensorFlow " << theirs[i];
  }
}

void checkRule(const Golden& golden, const RuleRecord& record) {
  const auto optimizer = makeOptimizer(record.spec);
  ASSERT_TRUE(optimizer.ok()) << optimizer.status();
  const LearningRate schedule(record.spec);
  const std::vector<std::string>& names = (*optimizer)->slots();
  ASSERT_EQ(names.size(), record.slots.size());
  Words w = golden.initial;
  std::vector<Words> slots;
  for (std::size_t k = 0; k < names.size(); ++k) {
    slots.emplace_back(w.size(), (*optimizer)->initialSlot(k));
  }
  const std::vector<std::span<float>> spans(slots.begin(), slots.end());
  Difference weights;
  ASSERT_EQ(record.weights.size(), golden.gradients.size());
  for (std::size_t step = 0; step < golden.gradients.size(); ++step) {
    const auto at = static_cast<std::int64_t>(step);
    (*optimizer)->apply({at, schedule.at(at)}, w, golden.gradients[step], w, spans);
    compare(w, record.weights[step], weights);
  }
  Difference last;
  for (std::size_t k = 0; k < names.size(); ++k) {
    ASSERT_TRUE(record.slots.count(names[k])) << names[k];
    compare(slots[k], record.slots.at(names[k]), last);
  }
  std::cout << fmt::format(
      "{}: {}, slots: {}\n", record.title,
      weights.unequal == 0
          ? std::string("bit-equal")
          : fmt::format("{} of {} differ, worst {:.3f} of what is allowed", weights.unequal,
                        w.size() * golden.gradients.size(), weights.worst),
      last.unequal == 0 ? std::string("bit-equal") : fmt::format("{} differ", last.unequal));
  // TensorFlow's inverse square root is an estimate in these two only.
  if (record.spec.name() == "Adagrad" || record.spec.name() == "Adadelta") return;
  EXPECT_EQ(weights.unequal, 0);
  EXPECT_EQ(last.unequal, 0);
}

TEST(GoldenOptimizers, TwentyStepsOfEveryRule) {
  const Golden golden = readGolden();
  ASSERT_EQ(golden.gradients.size(), 20u);
  ASSERT_GE(golden.rules.size(), 23u);
  for (const RuleRecord& record : golden.rules) {
    SCOPED_TRACE(record.title);
    checkRule(golden, record);
  }
}

TEST(GoldenOptimizers, LearningRateSchedules) {
  const Golden golden = readGolden();
  ASSERT_GE(golden.schedules.size(), 5u);
  for (const ScheduleRecord& record : golden.schedules) {
    const LearningRate schedule(record.spec);
    int unequal = 0;
    for (const auto& [step, rate] : record.rates) {
      const float ours = schedule.at(step);
      if (ours == rate) continue;
      ++unequal;
      // A power may be rounded the other way by another library of functions: one unit each.
      EXPECT_LE(std::abs(static_cast<double>(ours) - rate), 2.5e-7 * rate)
          << record.title << " at step " << step << ": " << ours << ", TensorFlow " << rate;
    }
    std::cout << fmt::format("schedule {}: {} of {} differ\n", record.title, unequal,
                             record.rates.size());
    if (record.spec.decay().staircase()) {
      EXPECT_EQ(unequal, 0) << record.title;
    }
  }
}

}  // namespace
}  // namespace trainyard::runtime
