#include "runtime/rows/row_admission.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "runtime/optimizer/optimizer.h"

namespace trainyard::runtime::rows {
namespace {

// A rule without slots, that has nothing to do.
const Optimizer& noRule() {
  static const std::unique_ptr<Optimizer> rule = [] {
    v1::OptimizerSpec spec;
    spec.set_name("SGD");
    return *makeOptimizer(spec);
  }();
  return *rule;
}

RowTableOptions countedAs(const RowTableOptions& of) {
  RowTableOptions options;
  options.name = of.name;  // the same partitions
  options.dim = 0;
  options.max_rows = of.max_rows;
  options.on_full = RowTableOptions::OnFull::kRefuseNew;
  options.evict = of.evict;
  options.evict.below_norm = 0;
  return options;
}

}  // namespace

RowAdmission::RowAdmission(const RowTableOptions& of, PartitionRange range)
    : counted_(countedAs(of), noRule(), range), admit_after_(of.admit_after) {}

void RowAdmission::filter(const RowTable& table, std::int64_t step, RowGradients& sum) {
  const auto dim = static_cast<std::size_t>(table.options().dim);
  std::vector<std::uint64_t> ids, admitted;
  std::vector<std::uint32_t> counts;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < sum.ids.size(); ++i) {
    const std::uint64_t id = sum.ids[i];
    if (!table.has(id)) {
      const std::uint32_t before = counted_.countOf(id);
      const std::uint32_t count = addCounts(before, sum.counts[i]);
      if (count < admit_after_) {
        ids.push_back(id);
        counts.push_back(sum.counts[i]);
        continue;
      }
      sum.counts[i] = count;
      if (before > 0) admitted.push_back(id);
    }
    sum.ids[kept] = id;
    sum.counts[kept] = sum.counts[i];
    std::copy_n(sum.sums.begin() + static_cast<std::ptrdiff_t>(i * dim), dim,
                sum.sums.begin() + static_cast<std::ptrdiff_t>(kept * dim));
    ++kept;
  }
  sum.ids.resize(kept);
  sum.counts.resize(kept);
  sum.sums.resize(kept * dim);
  const RowUpdate update{{step, 0}, static_cast<std::uint32_t>(step), ids, counts, {}};
  counted_.update(update, &undo_).IgnoreError();  // nothing in it can be wrong
  counted_.remove(admitted, undo_);
}

void RowAdmission::evict(std::int64_t version, std::int64_t step) {
  counted_.evict(version, static_cast<std::uint32_t>(step), undo_);
}

void RowAdmission::revert() {
  counted_.revert(undo_);
  undo_.clear();
}

}  // namespace trainyard::runtime::rows
