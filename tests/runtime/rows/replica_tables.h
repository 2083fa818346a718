// Parts with many tables and with one, and all that they hold, to be compared bit by bit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/core/rng.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "runtime/rows/row_part.h"
#include "tests/runtime/rows/one_table.h"
#include "tests/runtime/rows/whole_table.h"

namespace trainyard::runtime::rows {

// A table for each of four rules; rows of three go when they are old, ids of two get none at first.
class ManyTables {
 public:
  static constexpr PartitionRange kRange{5, 13};  // few: its partitions have several rows each

  ManyTables() {
    add("user", "Adam", 3, {.after_steps = 3, .below_norm = 0, .every_steps = 2}, 1);
    add("item", "Adagrad", 2, {.after_steps = 4, .below_norm = 0.2, .every_steps = 3}, 3);
    add("query", "Ftrl", 1, {}, 4);
    add("ad", "SGD", 4, {.after_steps = 5, .below_norm = 0, .every_steps = 1}, 1);
  }
  std::vector<RowTableConfig> configs;
  std::vector<std::vector<std::uint64_t>> ids;  // that there may be, by table

  std::vector<RowGradients> gradients(Rng& random) const {
    std::vector<RowGradients> all(configs.size());
    for (std::size_t t = 0; t < configs.size(); ++t) {
      for (const std::uint64_t id : ids[t]) {
        if (random.below(8) != 0) continue;
        all[t].ids.push_back(id);
        all[t].counts.push_back(1 + static_cast<std::uint32_t>(random.below(3)));
        for (int d = 0; d < configs[t].options.dim; ++d)
          all[t].sums.push_back(static_cast<float>(random.unit() * 2 - 1));
      }
    }
    return all;
  }

 private:
  void add(const char* name, const char* rule, int dim, RowEviction evict, int admit_after) {
    optimizers_.push_back(ruleNamed(rule));
    configs.push_back({{.name = name,
                        .dim = dim,
                        .max_rows = 100'000,
                        .initial = {RowInitializer::Kind::kUniform, 0.5F},
                        .evict = evict,
                        .admit_after = admit_after},
                       optimizers_.back().get(),
                       constantRate(0.3)});
    const RowOrder order(saltOf(name));
    std::vector<std::uint64_t>& own = ids.emplace_back();
    for (std::uint64_t id = 1; own.size() < 40; ++id) {
      if (kRange.has(order.partition(id))) own.push_back(id);
    }
    std::ranges::sort(own, {}, [&](std::uint64_t id) { return order.key(id); });
  }

  std::vector<std::unique_ptr<Optimizer>> optimizers_;
};

// Two samples a step.
inline StepPlan planOfOneRank() {
  StepPlan plan;
  plan.step_samples = plan.rank_samples = 2;
  plan.steps = 1000;
  plan.ranks = 1;
  return plan;
}

template <typename T>
void addBits(const std::vector<T>& values, std::string& bits) {
  bits += fmt::format(" {}:", values.size());
  bits.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

inline void addBits(const std::vector<RowGradients>& gradients, std::string& bits) {
  for (const RowGradients& of_table : gradients) {
    addBits(of_table.ids, bits);
    addBits(of_table.counts, bits);
    addBits(of_table.sums, bits);
  }
}

inline std::string bitsOf(const std::vector<TableRows>& stores) {
  std::string bits;
  for (const TableRows& rows : stores) {
    bits += fmt::format(" table {} from {}", rows.table, rows.first);
    addBits(rows.sizes, bits);
    addBits(rows.ids, bits);
    addBits(rows.steps, bits);
    addBits(rows.counts, bits);
    addBits(rows.weights, bits);
    for (const std::vector<float>& slot : rows.slots) addBits(slot, bits);
    addBits(rows.gone, bits);
    addBits(rows.gone_steps, bits);
  }
  return bits;
}

// Of its tables, as they are.
inline std::string bitsOf(const RowPart& part) {
  std::vector<TableRows> stores;
  for (std::size_t s = 0; s < part.stores(); ++s) stores.push_back(copyRows(part.store(s), s));
  return bitsOf(stores);
}

inline std::string bitsOf(const GivenPart& given) {
  std::string bits = fmt::format("{} {}", given.point, given.version) + bitsOf(given.stores);
  if (const PartUpdate* update = given.update.get()) {
    const RowRequest::Push& push = update->push;
    bits += fmt::format(" update {} {} of {}/{}/{}/{} {} {}+{}", update->point, update->step,
                        push.worker, push.created, push.start, push.number, push.ticket, push.first,
                        push.samples);
    addBits(update->gradients, bits);
  }
  for (const GivenPart::Applied& push : given.applied)
    bits += fmt::format(" {}/{}/{}/{}", push.worker, push.created, push.start, push.number);
  for (const NumberSet* set : {&given.tickets, &given.samples}) {
    for (const auto& [first, end] : set->ranges()) bits += fmt::format(" [{}, {})", first, end);
    bits += ';';
  }
  for (const std::vector<RowGradients>& push : given.brought) addBits(push, bits);
  return bits + fmt::format(" {} of {} samples", given.brought.size(), given.brought_samples);
}

inline auto answered(CallId call, RowAnswer::Code code) {
  return testing::AllOf(testing::Field(&RowAnswer::call, call),
                        testing::Field(&RowAnswer::code, code));
}
// Of the one table, a row.
inline auto answeredWith(CallId call, float row) {
  using testing::ElementsAre;
  return testing::AllOf(answered(call, RowAnswer::Code::kRows),
                        testing::Field(&RowAnswer::rows, ElementsAre(ElementsAre(row))));
}

inline std::vector<RowAnswer> askedOf(RowPart& part, RowRequest request, CallId call) {
  std::vector<RowAnswer> answers;
  part.onRequest(std::move(request), call, answers);
  return answers;
}

// All of it, `between` before each partition.
template <typename Between>
GivenPart readBy(RowPart& part, RowPart::ToFollower all, Between between) {
  for (std::size_t s = 0; all.rows != nullptr && s < part.stores(); ++s) {
    for (int p = part.range().first; p < part.range().last; ++p) {
      between();
      appendBatch(all.rows->read(part, s, p), static_cast<std::size_t>(part.store(s).options().dim),
                  all.given.stores[s]);
    }
  }
  return std::move(all.given);
}

// What it sends to its replica.
inline std::shared_ptr<const PartUpdate> sentBy(RowPart& part) {
  return part.takeUpdate();
}

}  // namespace trainyard::runtime::rows
