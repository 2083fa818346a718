#include "cli/plan/table_plan.h"

#include <algorithm>

#include "runtime/catalog/memory.h"
#include "runtime/optimizer/optimizer.h"

namespace trainyard::cli {
namespace {

constexpr std::int64_t kFloat = 4;
// Of a row beside its floats: id, step, count; and two cells of eight bytes of the index, which is
// between three and six eighths full (runtime/rows/row_slab.h, row_index.h).
constexpr std::int64_t kHeader = 16;
constexpr std::int64_t kPlace = 16;
constexpr std::int64_t kAlignment = 16;
// On its way: an id, and the number of its occurrences.
constexpr std::int64_t kId = 8;
constexpr std::int64_t kCount = 4;

std::int64_t slotsOf(const v1::OptimizerSpec& spec) {
  const auto optimizer = runtime::makeOptimizer(spec);
  return optimizer.ok() ? static_cast<std::int64_t>((*optimizer)->slots().size()) : 0;
}

std::int64_t rowBytes(std::int64_t dim, std::int64_t slots) {
  const std::int64_t bytes = kHeader + (1 + slots) * dim * kFloat;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment + kPlace;
}

}  // namespace

std::vector<TablePlan> tablePlans(const v1::JobSpec& spec) {
  const v1::Training& training = spec.training();
  const std::int64_t workers =
      std::int64_t{spec.worker().replicas()} * std::max(1, spec.worker().processes_per_pod());
  std::vector<TablePlan> plans;
  for (const v1::TableSpec& table : training.tables()) {
    TablePlan& plan = plans.emplace_back();
    plan.name = table.name();
    plan.dim = table.dim();
    plan.row_bytes = rowBytes(
        plan.dim, slotsOf(table.has_optimizer() ? table.optimizer() : training.optimizer()));
    plan.max_rows = table.rows().max();
    plan.max_bytes = plan.max_rows * plan.row_bytes;
    const std::int64_t ids = workers * runtime::samplesPerWorker(spec) * table.features_size();
    plan.in_per_step = ids * (2 * kId + kCount + plan.dim * kFloat);
    plan.out_per_step = ids * plan.dim * kFloat;
  }
  return plans;
}

}  // namespace trainyard::cli
