// A table against a plain map of rows and the rules of dense variables.
#include "runtime/rows/row_table.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <set>

#include "base/core/rng.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard::runtime::rows {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kDim = 5;

std::unique_ptr<Optimizer> rule(const std::string& name) {
  v1::OptimizerSpec spec;
  spec.set_name(name);
  return *makeOptimizer(spec);
}

RowTableOptions userTable(std::int64_t max_rows = 100'000) {
  return {.name = "user",
          .dim = kDim,
          .max_rows = max_rows,
          .initial = {RowInitializer::Kind::kUniform, 0.1F},
          .seed = 3};
}

// One step's ids, each once, with gradients that tell them apart.
struct Step {
  std::vector<std::uint64_t> ids;
  std::vector<std::uint32_t> counts;
  std::vector<float> gradients;
  UpdateContext context;

  RowUpdate update() const {
    return {context, static_cast<std::uint32_t>(context.step), ids, counts, gradients};
  }
};

Step randomStep(Rng& random, std::int64_t step, std::size_t most, std::uint64_t ids) {
  std::set<std::uint64_t> chosen;
  for (std::size_t i = 0; i < most; ++i) chosen.insert(random.below(ids) * 0x9E3779B97F4A7C15);
  Step made;
  made.context = {step, 0.05F};
  made.ids.assign(chosen.begin(), chosen.end());
  for (std::size_t i = 0; i < made.ids.size(); ++i)
    made.counts.push_back(static_cast<std::uint32_t>(1 + random.below(3)));
  for (std::size_t i = 0; i < made.ids.size() * kDim; ++i)
    made.gradients.push_back(static_cast<float>(random.unit() - 0.5));
  return made;
}

std::vector<float> pulled(const RowTable& table, std::vector<std::uint64_t> ids) {
  std::vector<float> rows(ids.size() * kDim);
  table.pull(ids, rows);
  return rows;
}

// Everything that a table keeps, as text.
std::vector<std::string> contents(const RowTable& table) {
  std::vector<std::string> lines;
  for (int p = table.range().first; p < table.range().last; ++p) {
    for (const RowView& row : table.rows(p)) {
      lines.push_back(fmt::format("{} {} {} {} {}", row.id, row.step, row.count,
                                  fmt::join(row.weights, ","), fmt::join(row.slots, ",")));
    }
  }
  return lines;
}

// What a dense variable of this one row would hold after the same steps.
class DenseRows {
 public:
  explicit DenseRows(const Optimizer& optimizer) : optimizer_(optimizer) {}

  void update(const Step& step, const RowTable& untouched) {
    for (std::size_t i = 0; i < step.ids.size(); ++i) {
      auto [row, is_new] = rows_.try_emplace(step.ids[i]);
      if (is_new) row->second = fresh(step.ids[i], untouched);
      std::vector<std::span<float>> slots(row->second.begin() + 1, row->second.end());
      std::vector<float>& weights = row->second[0];
      optimizer_.apply(step.context, weights, std::span(step.gradients).subspan(i * kDim, kDim),
                       weights, slots);
      counts_[step.ids[i]] += step.counts[i];
      steps_[step.ids[i]] = step.context.step;
    }
  }
  void expectIn(const RowTable& table) const {
    std::size_t seen = 0;
    for (int p = 0; p < kPartitions; ++p) {
      for (const RowView& row : table.rows(p)) {
        ++seen;
        const auto& wanted = rows_.at(row.id);
        EXPECT_TRUE(std::ranges::equal(row.weights, wanted[0])) << row.id;
        for (std::size_t s = 1; s < wanted.size(); ++s)
          EXPECT_TRUE(std::ranges::equal(row.slots.subspan((s - 1) * kDim, kDim), wanted[s]));
        EXPECT_EQ(row.count, counts_.at(row.id));
        EXPECT_EQ(row.step, static_cast<std::uint32_t>(steps_.at(row.id)));
      }
    }
    EXPECT_EQ(seen, rows_.size());
    EXPECT_EQ(table.size(), static_cast<std::int64_t>(rows_.size()));
  }

 private:
  std::vector<std::vector<float>> fresh(std::uint64_t id, const RowTable& untouched) const {
    std::vector<std::vector<float>> arrays{pulled(untouched, {id})};
    for (std::size_t s = 0; s < optimizer_.slots().size(); ++s)
      arrays.emplace_back(kDim, optimizer_.initialSlot(s));
    return arrays;
  }

  const Optimizer& optimizer_;
  std::map<std::uint64_t, std::vector<std::vector<float>>> rows_;
  std::map<std::uint64_t, std::uint32_t> counts_;
  std::map<std::uint64_t, std::int64_t> steps_;
};

class EveryRule : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Rules, EveryRule,
                         testing::Values("SGD", "Momentum", "Adagrad", "Adadelta", "Adam",
                                         "RMSProp", "Ftrl"));

// Touched rows move as a dense variable of that row alone would in those steps; all others stay.
TEST_P(EveryRule, MovesTheRowsOfAStepAndNoOthers) {
  const auto optimizer = rule(GetParam());
  RowTable table(userTable(), *optimizer);
  const RowTable untouched(userTable(), *optimizer);
  DenseRows dense(*optimizer);
  Rng random(7);
  for (std::int64_t step = 0; step < 30; ++step) {
    const Step made = randomStep(random, step, 100, 700);
    ASSERT_TRUE(table.update(made.update()).ok());
    dense.update(made, untouched);
  }
  dense.expectIn(table);
}

TEST(RowTable, IsTheSameForAnyNumberOfServersAndOrderOfIds) {
  const auto optimizer = rule("Adam");
  std::vector<std::vector<std::string>> held;
  for (const int servers : {1, 2, 3}) {
    std::vector<std::unique_ptr<RowTable>> tables;
    for (int s = 0; s < servers; ++s) {
      tables.push_back(std::make_unique<RowTable>(
          userTable(), *optimizer,
          PartitionRange{kPartitions * s / servers, kPartitions * (s + 1) / servers}));
    }
    Rng random(11);
    for (std::int64_t step = 0; step < 20; ++step) {
      const Step whole = randomStep(random, step, 200, 3000);
      for (const auto& table : tables) {
        Step part{.ids = {}, .counts = {}, .gradients = {}, .context = whole.context};
        for (std::size_t k = 0; k < whole.ids.size(); ++k) {
          // In another order for each number of servers.
          const std::size_t i = servers == 2 ? whole.ids.size() - 1 - k : k;
          if (!table->range().has(partitionOf(hashOf(whole.ids[i], saltOf("user"))))) continue;
          part.ids.push_back(whole.ids[i]);
          part.counts.push_back(whole.counts[i]);
          const auto row = std::span(whole.gradients).subspan(i * kDim, kDim);
          part.gradients.insert(part.gradients.end(), row.begin(), row.end());
        }
        ASSERT_TRUE(table->update(part.update()).ok());
      }
    }
    held.emplace_back();
    for (const auto& table : tables)
      std::ranges::copy(contents(*table), std::back_inserter(held.back()));
  }
  EXPECT_EQ(held[0], held[1]);
  EXPECT_EQ(held[0], held[2]);
}

TEST(RowTable, APullCreatesNothingAndReadsWhatAnUpdateBeginsWith) {
  const auto optimizer = rule("SGD");
  RowTable table(userTable(), *optimizer);
  const auto before = pulled(table, {8, 9, 8});
  EXPECT_EQ(table.size(), 0);
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + kDim, before.begin() + 2 * kDim));
  const std::vector<float> nothing(kDim, 0);
  const std::vector<std::uint64_t> ids{8};
  ASSERT_TRUE(table.update({{0, 0.1F}, 0, ids, {}, nothing}).ok());
  EXPECT_EQ(table.size(), 1);
  EXPECT_EQ(pulled(table, {8, 9, 8}), before);
}

// What another system does: rows behind one that is missing get the gradients of their neighbours.
TEST(RowTable, ARowThatIsNotThereShiftsNoGradient) {
  const auto optimizer = rule("SGD");
  for (const auto on_full : {RowTableOptions::OnFull::kFail, RowTableOptions::OnFull::kRefuseNew}) {
    RowTableOptions options = userTable(1);
    options.initial = {};
    options.on_full = on_full;
    RowTable table(options, *optimizer);
    const auto cap = static_cast<std::size_t>(partitionCap(1));
    // Ids of one partition, one more than it may hold.
    std::vector<std::uint64_t> ids;
    for (std::uint64_t id = 0; ids.size() <= cap; ++id) {
      if (partitionOf(hashOf(id, saltOf("user"))) == 0) ids.push_back(id);
    }
    const std::uint64_t last = ids.back();
    const std::vector<std::uint64_t> known(ids.begin(), ids.end() - 1);
    const std::vector<float> zeros(known.size() * kDim, 0);
    ASSERT_TRUE(table.update({{0, 1}, 0, known, {}, zeros}).ok());
    const std::vector<std::uint64_t> step{known[0], last, known[1]};
    std::vector<float> gradients;
    for (const float g : {1.0F, 2.0F, 3.0F}) gradients.insert(gradients.end(), kDim, g);
    const auto updated = table.update({{1, 1}, 1, step, {}, gradients});
    if (on_full == RowTableOptions::OnFull::kFail) {
      EXPECT_TRUE(absl::IsResourceExhausted(updated.status()));
      EXPECT_THAT(std::string(updated.status().message()),
                  HasSubstr("table user: a partition of 1024 holds 17 rows, rows.max is 1"));
      continue;
    }
    ASSERT_TRUE(updated.ok());
    EXPECT_EQ(updated->refused, 1);
    EXPECT_EQ(updated->created, 0);
    EXPECT_FALSE(table.has(last));
    EXPECT_THAT(pulled(table, {known[0]}), ElementsAre(-1, -1, -1, -1, -1));
    EXPECT_THAT(pulled(table, {known[1]}), ElementsAre(-3, -3, -3, -3, -3));
  }
}

TEST(RowTable, AGradientThatIsNotFiniteNamesTableAndIdAndChangesNothing) {
  const auto optimizer = rule("Adagrad");
  RowTable table(userTable(), *optimizer);
  const std::vector<std::uint64_t> ids{1, 18'000'000'000'000'000'000U, 3};
  std::vector<float> gradients(3 * kDim, 1);
  gradients[kDim + 2] = std::numeric_limits<float>::quiet_NaN();
  const auto refused = table.update({{0, 1}, 0, ids, {}, gradients});
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status()));
  EXPECT_EQ(std::string(refused.status().message()),
            "table user: the gradient of id 18000000000000000000 is not finite");
  EXPECT_EQ(table.size(), 0);
}

// With all that a step does: rows made, changed, and taken away because they are old or small.
TEST_P(EveryRule, AStepThatIsUndoneWasNotTaken) {
  const auto optimizer = rule(GetParam());
  RowTableOptions options = userTable(1200);
  options.evict = {.after_steps = 12, .below_norm = 0.1, .every_steps = 4};
  RowTable table(options, *optimizer);
  RowUndo undo;
  Rng random(5);
  std::int64_t evicted = 0;
  std::vector<std::uint64_t> all;
  for (std::uint64_t id = 0; id < 900; ++id) all.push_back(id * 0x9E3779B97F4A7C15);
  int failed = 0;
  for (std::int64_t step = 0; step < 40; ++step) {
    const std::vector<std::string> before = contents(table);
    const std::vector<float> former = pulled(table, all);
    const Step made = randomStep(random, step, 60, 900);
    failed += table.update(made.update(), &undo).ok() ? 0 : 1;
    evicted += table.evict(step + 1, static_cast<std::uint32_t>(step), undo);
    std::vector<float> read(all.size() * kDim);
    table.pullBefore(undo, all, read);
    EXPECT_EQ(read, former);
    if (random.below(2) == 0) continue;
    table.revert(undo);
    ASSERT_EQ(contents(table), before) << "step " << step;
    EXPECT_EQ(pulled(table, all), former);
  }
  EXPECT_EQ(failed, 0);
  EXPECT_GT(evicted, 200);
}

// Which are there after updates of all of them in step 0 and of some in step 9.
std::vector<std::string> afterEviction(RowEviction evict, std::int64_t version,
                                       PartitionRange range = {}) {
  const auto optimizer = rule("SGD");
  RowTableOptions options = userTable();
  options.evict = evict;
  RowTable table(options, *optimizer, range);
  for (const std::int64_t step : {0, 9}) {
    Step made{.ids = {}, .counts = {}, .gradients = {}, .context = {step, 1}};
    for (std::uint64_t id = 0; id < 3000; id += step == 0 ? 1 : 3) {
      if (range.has(partitionOf(hashOf(id, saltOf("user"))))) made.ids.push_back(id);
    }
    made.counts.assign(made.ids.size(), 1);
    made.gradients.assign(made.ids.size() * kDim, 0);
    RowUndo undo;
    EXPECT_TRUE(table.update(made.update(), &undo).ok());
    if (step == 0) continue;
    const std::int64_t before = table.size();
    const std::int64_t gone = table.evict(version, 9, undo);
    EXPECT_EQ(gone, before - table.size());
  }
  return contents(table);
}

TEST(RowTable, OldRowsGoWhenTheirPartitionIsLookedAt) {
  const std::vector<std::string> all = afterEviction({}, 10);
  EXPECT_EQ(all.size(), 3000U);
  EXPECT_EQ(afterEviction({.after_steps = 10, .below_norm = 0, .every_steps = 1}, 10), all);
  // All that are old.
  EXPECT_EQ(afterEviction({.after_steps = 9, .below_norm = 0, .every_steps = 1}, 10).size(), 1000U);
  std::set<std::string> gone;
  for (std::int64_t version = 10; version < 14; ++version) {
    const auto left = afterEviction({.after_steps = 9, .below_norm = 0, .every_steps = 4}, version);
    const std::set<std::string> there(left.begin(), left.end());
    std::ranges::copy_if(all, std::inserter(gone, gone.end()),
                         [&](const std::string& row) { return !there.contains(row); });
    EXPECT_NEAR(static_cast<double>(left.size()), 2500, 100);
    // The same rows whoever holds which partitions.
    std::vector<std::string> parts;
    for (const PartitionRange range : {PartitionRange{0, 333}, {333, 334}, {334, kPartitions}}) {
      std::ranges::copy(
          afterEviction({.after_steps = 9, .below_norm = 0, .every_steps = 4}, version, range),
          std::back_inserter(parts));
    }
    EXPECT_EQ(parts, left);
  }
  EXPECT_EQ(gone.size(), 2000U) << "in four versions each partition is looked at once";
}

TEST(RowTable, SmallRowsGoUnlessTheyHaveJustChanged) {
  const auto optimizer = rule("SGD");
  RowTableOptions options = userTable();
  options.initial = {};
  options.evict = {.after_steps = 0, .below_norm = 0.5, .every_steps = 1};
  RowTable table(options, *optimizer);
  const auto train = [&](std::int64_t step, std::uint64_t id, float gradient) {
    RowUndo undo;
    const std::vector<std::uint64_t> ids{id};
    const std::vector<float> gradients(kDim, gradient);
    EXPECT_TRUE(
        table.update({{step, 1}, static_cast<std::uint32_t>(step), ids, {}, gradients}, &undo)
            .ok());
    return table.evict(step + 1, static_cast<std::uint32_t>(step), undo);
  };
  EXPECT_EQ(train(0, 1, 0.2F), 0);   // of norm 0.45, but of this step
  EXPECT_EQ(train(1, 2, -0.3F), 1);  // of norm 0.67; the other is old by now
  EXPECT_EQ(train(2, 3, 0), 0);
  EXPECT_TRUE(!table.has(1) && table.has(2) && table.has(3));
  // It begins anew.
  train(3, 1, 0.4F);
  EXPECT_THAT(pulled(table, {1}), testing::Each(-0.4F));
}

// The number of a step is cut to 32 bits.
TEST(RowTable, RowsAreAsOldAsTheyAreWhereNumbersOfStepsBeginAgain) {
  const auto optimizer = rule("SGD");
  RowTableOptions options = userTable();
  options.evict = {.after_steps = 5, .below_norm = 0, .every_steps = 1};
  RowTable table(options, *optimizer);
  const std::vector<float> gradient(kDim, 1);
  RowUndo undo;
  for (const std::uint64_t step : {0xFFFFFFFEULL, 0x100000001ULL, 0x100000003ULL}) {
    const std::vector<std::uint64_t> ids{step};
    const auto number = static_cast<std::int64_t>(step);
    ASSERT_TRUE(
        table.update({{number, 1}, static_cast<std::uint32_t>(step), ids, {}, gradient}, &undo)
            .ok());
    table.evict(number + 1, static_cast<std::uint32_t>(step), undo);
  }
  EXPECT_FALSE(table.has(0xFFFFFFFE));
  EXPECT_TRUE(table.has(0x100000001) && table.has(0x100000003));
}

TEST(RowTable, AStepThatDoesNotFitCanBeUndone) {
  const auto optimizer = rule("Adagrad");
  RowTable table(userTable(1), *optimizer);
  RowUndo undo;
  Rng random(6);
  const Step first = randomStep(random, 0, 500, 500);
  ASSERT_TRUE(table.update(first.update(), &undo).ok());
  const std::vector<std::string> before = contents(table);
  // Of one partition, more than it may hold.
  Step large{.ids = {}, .counts = {}, .gradients = {}, .context = {1, 0.1F}};
  for (std::uint64_t id = 0; large.ids.size() < 40; ++id) {
    if (partitionOf(hashOf(id, saltOf("user"))) == 0) large.ids.push_back(id);
  }
  large.counts.assign(large.ids.size(), 1);
  large.gradients.assign(large.ids.size() * kDim, 1);
  EXPECT_TRUE(absl::IsResourceExhausted(table.update(large.update(), &undo).status()));
  EXPECT_NE(contents(table), before);
  table.revert(undo);
  EXPECT_EQ(contents(table), before);
}

TEST(RowTable, WhatWasLoadedIsWhatWasKept) {
  const auto optimizer = rule("RMSProp");
  RowTable table(userTable(), *optimizer);
  Rng random(2);
  for (std::int64_t step = 0; step < 5; ++step)
    ASSERT_TRUE(table.update(randomStep(random, step, 300, 5000).update()).ok());
  RowTable other(userTable(), *optimizer);
  for (int p = kPartitions - 1; p >= 0; --p) {
    for (const RowView& row : table.rows(p)) other.load(row);
  }
  EXPECT_EQ(contents(other), contents(table));
  const Step next = randomStep(random, 5, 300, 5000);
  ASSERT_TRUE(table.update(next.update()).ok());
  ASSERT_TRUE(other.update(next.update()).ok());
  EXPECT_EQ(contents(other), contents(table));
}

TEST(RowTable, CountsStandStillWhereTheyWouldOverflow) {
  const auto optimizer = rule("SGD");
  RowTable table(userTable(), *optimizer);
  const std::vector<std::uint64_t> ids{4};
  const std::vector<std::uint32_t> many{UINT32_MAX - 1};
  const std::vector<float> gradient(kDim, 0);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(table.update({{i, 1}, 0, ids, many, gradient}).ok());
  EXPECT_EQ(table.rows(partitionOf(hashOf(4, saltOf("user"))))[0].count, UINT32_MAX);
}

TEST(RowTable, RowsThatAreExpectedHaveTheirPlaceAtOnce) {
  const auto optimizer = rule("SGD");
  RowTableOptions options = userTable(1'000'000);
  RowTable plain(options, *optimizer);
  options.expected_rows = 100'000;
  RowTable table(options, *optimizer);
  // Of cells of eight bytes, at most three of four in use.
  EXPECT_GT(table.bytes() - plain.bytes(), 100'000 * 8);
  EXPECT_LT(table.bytes() - plain.bytes(), 100'000 * 32);
  Rng random(4);
  for (int step = 0; step < 5; ++step) {
    const Step next = randomStep(random, step, 300, 5000);
    ASSERT_TRUE(table.update(next.update()).ok());
    ASSERT_TRUE(plain.update(next.update()).ok());
  }
  EXPECT_EQ(contents(table), contents(plain));
}

// At most 48 bytes a row beside its weights and slots, at any size.
TEST(RowTable, TakesLittleMoreThanItsWeights) {
  const auto optimizer = rule("Adagrad");
  RowTableOptions options = userTable(10'000'000);
  options.dim = 16;
  RowTable table(options, *optimizer);
  std::vector<std::uint64_t> ids(1 << 15);
  const std::vector<float> gradients(ids.size() * 16, 0);
  double worst = 0;
  for (std::uint64_t block = 0; block < 20; ++block) {
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = block * ids.size() + i;
    ASSERT_TRUE(table.update({{0, 1}, 0, ids, {}, gradients}).ok());
    if (block < 4) continue;  // where a partition has more rows than it has in reserve
    worst = std::max(worst, static_cast<double>(table.bytes()) / static_cast<double>(table.size()));
  }
  EXPECT_LE(worst - 2 * 16 * sizeof(float), 48);
}

}  // namespace
}  // namespace trainyard::runtime::rows
