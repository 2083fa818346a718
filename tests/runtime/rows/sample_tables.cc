#include "tests/runtime/rows/sample_tables.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/core/rng.h"
#include "fmt/format.h"
#include "runtime/optimizer/optimizer.h"

namespace trainyard::runtime::rows {
namespace {

constexpr std::uint64_t kIds = 40;  // of a table
constexpr std::size_t kDims[] = {2, 1};
constexpr std::size_t kTables = 2;
constexpr const char* kNames[] = {"user", "ad"};
constexpr float kRate = 0.25F;
constexpr int kOld[] = {3, 6};  // steps
constexpr int kLooksEvery = 4;
constexpr std::size_t kCounts = 1;  // ids of this table
constexpr std::uint32_t kOften = 4;

std::vector<std::uint64_t> idsOf(std::int64_t position, std::size_t table) {
  Rng random(static_cast<std::uint64_t>(position) * 2 + table);
  std::vector<std::uint64_t> ids;
  for (std::uint64_t i = random.below(3); i < 4; ++i)
    ids.push_back(random.below(kIds) * 0x9E3779B97F4A7C15);
  return ids;
}

// Whole numbers: every order of summation gives the same bits.
float gradientOf(std::int64_t position, float sum) {
  const auto up = static_cast<float>(position % 3 - 1);
  return static_cast<int>(sum * 32) % 2 != 0 ? up + 2 : up - 1;
}

}  // namespace

SampleTables::SampleTables(bool forgets) {
  spec_.set_name("SGD");
  spec_.set_learning_rate(kRate);
  optimizer_ = *makeOptimizer(spec_);
  for (std::size_t t = 0; t < kTables; ++t) {
    RowTableOptions options;
    options.name = kNames[t];
    options.dim = static_cast<int>(kDims[t]);
    options.max_rows = 100'000;
    if (forgets) {
      options.evict = {.after_steps = kOld[t], .below_norm = 0, .every_steps = kLooksEvery};
      options.admit_after = t == kCounts ? kOften : 1;
    }
    configs.push_back({std::move(options), optimizer_.get(), LearningRate(spec_)});
    workers.push_back({kNames[t], kDims[t]});
  }
}

RowIds rowIdsAt(std::int64_t first, int count) {
  RowIds ids(kTables);
  for (std::int64_t p = first; p < first + count; ++p) {
    for (std::size_t t = 0; t < kTables; ++t)
      std::ranges::copy(idsOf(p, t), std::back_inserter(ids[t]));
  }
  return ids;
}

RowValues rowGradients(const StepPlan::Share& share, const RowValues& rows) {
  RowValues gradients(kTables);
  std::vector<std::size_t> at(kTables);
  for (std::int64_t p = share.first; p < share.first + share.count; ++p) {
    float sum = 0;
    std::vector<std::size_t> floats;
    for (std::size_t t = 0; t < kTables; ++t) {
      floats.push_back(idsOf(p, t).size() * kDims[t]);
      for (std::size_t i = 0; i < floats[t]; ++i) sum += rows[t][at[t]++];
    }
    for (std::size_t t = 0; t < kTables; ++t)
      gradients[t].insert(gradients[t].end(), floats[t], gradientOf(p, sum));
  }
  return gradients;
}

RowValues LoneRows::at(const StepPlan::Share& share) const {
  const RowIds ids = rowIdsAt(share.first, share.count);
  RowValues values(kTables);
  for (std::size_t t = 0; t < kTables; ++t) {
    for (const std::uint64_t id : ids[t]) {
      const auto row = rows_.find({t, id});
      if (row == rows_.end()) {
        values[t].insert(values[t].end(), kDims[t], 0.0F);
      } else {
        std::ranges::copy(row->second.weights, std::back_inserter(values[t]));
      }
    }
  }
  return values;
}

void LoneRows::take(const StepPlan& plan, std::int64_t step) {
  const StepPlan::Share all{plan.positionOf(step), static_cast<int>(plan.samplesOf(step))};
  const RowIds ids = rowIdsAt(all.first, all.count);
  const RowValues gradients = rowGradients(all, at(all));
  std::map<std::pair<std::size_t, std::uint64_t>, Row> touched;
  for (std::size_t t = 0; t < kTables; ++t) {
    for (std::size_t i = 0; i < ids[t].size(); ++i) {
      Row& sum = touched[{t, ids[t][i]}];
      sum.weights.resize(kDims[t]);
      ++sum.count;
      for (std::size_t d = 0; d < kDims[t]; ++d) sum.weights[d] += gradients[t][i * kDims[t] + d];
    }
  }
  for (auto& [key, sum] : touched) {
    if (!isAdmitted(key, step, sum)) continue;
    Row& row = rows_[key];
    row.step = static_cast<std::uint32_t>(step);
    row.count += sum.count;
    row.weights.resize(sum.weights.size());
    for (std::size_t d = 0; d < row.weights.size(); ++d)
      row.weights[d] -= sum.weights[d] / static_cast<float>(all.count) * kRate;
  }
  evict(step, rows_);
  evict(step, counted_);
}

// Whoever is brings all of his occurrences.
bool LoneRows::isAdmitted(const Rows::key_type& key, std::int64_t step, Row& sum) {
  if (!forgets_ || key.first != kCounts || rows_.contains(key)) return true;
  Row& counted = counted_[key];
  counted.step = static_cast<std::uint32_t>(step);
  counted.count += sum.count;
  if (counted.count < kOften) return false;
  sum.count = counted.count;
  counted_.erase(key);
  return true;
}

void LoneRows::evict(std::int64_t step, Rows& rows) const {
  if (!forgets_) return;
  static const RowOrder orders[] = {RowOrder(saltOf(kNames[0])), RowOrder(saltOf(kNames[1]))};
  std::erase_if(rows, [&](const auto& entry) {
    const auto& [key, row] = entry;
    const int partition = orders[key.first].partition(key.second);
    return (step + 1 - partition) % kLooksEvery == 0 && step - row.step >= kOld[key.first];
  });
}

bool LoneRows::equals(const TableRows& copy) const {
  const bool counts = copy.table == kTables;
  const std::size_t table = counts ? kCounts : copy.table;
  const Rows& rows = counts ? counted_ : rows_;
  const RowOrder order(saltOf(kNames[table]));
  const PartitionRange range{copy.first, copy.first + static_cast<int>(copy.sizes.size())};
  std::size_t expected = 0;
  for (const auto& [key, row] : rows)
    expected += key.first == table && range.has(order.partition(key.second));
  const std::size_t dim = counts ? 0 : kDims[table];
  for (std::size_t i = 0; i < copy.ids.size(); ++i) {
    const auto row = rows.find({table, copy.ids[i]});
    if (row == rows.end() || row->second.step != copy.steps[i] ||
        row->second.count != copy.counts[i] ||
        !std::ranges::equal(row->second.weights, std::span(copy.weights).subspan(i * dim, dim)))
      return false;
  }
  return expected == copy.ids.size();
}

void PushedRows::bring(const StepPlan::Share& share, const RowValues& gradients) {
  pushes_[share.first] = {share, gradients, false};
}

void PushedRows::finish(std::int64_t first) {
  if (const auto push = pushes_.find(first); push != pushes_.end()) push->second.finished = true;
}

void PushedRows::leave(std::int64_t first) {
  const auto push = pushes_.find(first);
  if (push == pushes_.end()) return;
  left_.push_back(std::move(push->second));
  pushes_.erase(push);
}

void PushedRows::add(const Push& push, Sums& sums) {
  const RowIds ids = rowIdsAt(push.share.first, push.share.count);
  for (std::size_t t = 0; t < kTables; ++t) {
    for (std::size_t i = 0; i < ids[t].size(); ++i) {
      Sum& sum = sums[{t, ids[t][i]}];
      sum.weights.resize(kDims[t]);
      ++sum.most;
      sum.least += push.finished;
      for (std::size_t d = 0; d < kDims[t]; ++d)
        sum.weights[d] -= push.gradients[t][i * kDims[t] + d] / push.share.count * kRate;
    }
  }
}

PushedRows::Sums PushedRows::sums() const {
  Sums sums;
  for (const auto& [first, push] : pushes_) add(push, sums);
  for (const Push& push : left_) add(push, sums);
  return sums;
}

std::string PushedRows::compare(const std::vector<TableRows>& rows, int aggregate) const {
  Sums missing = sums();
  for (const TableRows& copy : rows) {
    const std::size_t dim = kDims[copy.table];
    for (std::size_t i = 0; i < copy.ids.size(); ++i) {
      const auto found = missing.find({copy.table, copy.ids[i]});
      if (found == missing.end()) return fmt::format("id {} was not pushed", copy.ids[i]);
      const Sum sum = found->second;
      missing.erase(found);
      if (copy.counts[i] < sum.least || copy.counts[i] > sum.most) {
        return fmt::format("id {} of {} has {} occurrences, {} to {} were pushed", copy.ids[i],
                           kNames[copy.table], copy.counts[i], sum.least, sum.most);
      }
      if (sum.least != sum.most || aggregate == 0) continue;
      for (std::size_t d = 0; d < dim; ++d) {
        // Rounded by each update, in another order.
        const double expected = sum.weights[d] / aggregate;
        if (std::abs(copy.weights[i * dim + d] - expected) > 1e-3)
          return fmt::format("id {} of {}: {} is not {}", copy.ids[i], kNames[copy.table],
                             copy.weights[i * dim + d], expected);
      }
    }
  }
  for (const auto& [key, sum] : missing) {
    if (sum.least > 0) return fmt::format("id {} of {} is lost", key.second, kNames[key.first]);
  }
  return {};
}

}  // namespace trainyard::runtime::rows
