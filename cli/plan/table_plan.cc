#include "cli/plan/table_plan.h"

#include <algorithm>
#include <cmath>

#include "cli/plan/distinct_ids.h"
#include "runtime/catalog/memory.h"
#include "runtime/catalog/table_parts.h"
#include "runtime/catalog/wire_type.h"
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

// Of so many samples, an id once. Nothing: the data are not made up, or have several ids in a
// column.
std::optional<double> expectedIds(const v1::JobSpec& spec, const v1::TableSpec& table,
                                  std::int64_t samples) {
  const v1::DataSpec& data = spec.training().data();
  if (data.format() != "synthetic_ctr") return std::nullopt;
  double ids = 0;
  for (const std::string& feature : table.features()) {  // no two columns have an id in common
    const auto column =
        std::ranges::find_if(data.columns(), [&](const auto& c) { return c.name() == feature; });
    if (column == data.columns().end() || column->kind() != "Id") return std::nullopt;
    ids += expectedDistinct(column->ids(), kIdExponent, samples);
  }
  return ids;
}

// `ids`: that all workers ask for. Elements are as long as training.wireType says.
StepBytes stepBytes(double ids, std::int64_t dim, const v1::Training& training) {
  const double row = static_cast<double>(dim * runtime::wireBytes(training));
  return {.in = std::llround(ids * (2 * kId + kCount + row)), .out = std::llround(ids * row)};
}

bool hasCommonSteps(const v1::Training& training) {
  return training.update().mode().empty() || training.update().mode() == "Sync";
}

// Floats to replicas are not shortened.
std::int64_t replicatedBytes(double ids, std::int64_t dim) {
  return std::llround(ids * static_cast<double>(kId + kCount + dim * kFloat));
}

TablePlan planOf(const v1::TableSpec& table, const v1::JobSpec& spec) {
  const v1::Training& training = spec.training();
  const std::int64_t workers =
      std::int64_t{spec.worker().replicas()} * std::max(1, spec.worker().processes_per_pod());
  TablePlan plan;
  plan.name = table.name();
  plan.dim = table.dim();
  plan.row_bytes =
      rowBytes(plan.dim, slotsOf(table.has_optimizer() ? table.optimizer() : training.optimizer()));
  plan.max_rows = table.rows().max();
  plan.max_bytes = plan.max_rows * plan.row_bytes;
  plan.expected_rows = table.rows().expected();
  plan.expected_bytes = plan.expected_rows * plan.row_bytes;
  const std::int64_t samples = runtime::samplesPerWorker(spec);
  const std::int64_t most = workers * samples * table.features_size();
  plan.most = stepBytes(static_cast<double>(most), plan.dim, training);
  auto to_replicas = static_cast<double>(most);
  if (const auto ids = expectedIds(spec, table, samples)) {
    to_replicas = static_cast<double>(workers) * *ids;
    plan.expected = stepBytes(to_replicas, plan.dim, training);
    if (hasCommonSteps(training)) to_replicas = *expectedIds(spec, table, workers * samples);
  }
  if (runtime::keepsReplicas(spec)) plan.replicated = replicatedBytes(to_replicas, plan.dim);
  return plan;
}

// Each server's part has its replica on the next one.
void addReplicas(std::vector<TableServerPlan>& servers) {
  for (std::size_t i = 0; servers.size() > 1 && i < servers.size(); ++i)
    servers[(i + 1) % servers.size()].replica_bytes = servers[i].max_bytes;
}

std::vector<TableServerPlan> serversOf(const TablePlans& plans, int servers) {
  TableServerPlan all;
  for (const TablePlan& table : plans.tables) {
    const StepBytes& step = plans.expected ? *table.expected : table.most;
    all.max_bytes += table.max_bytes;
    all.step.in += step.in;
    all.step.out += step.out;
    all.replicated += table.replicated;
  }
  std::vector<int> parts(static_cast<std::size_t>(servers));
  for (int part = 0; part < runtime::kTableParts; ++part)
    ++parts[static_cast<std::size_t>(runtime::serverOfTablePart(part, servers))];
  std::vector<TableServerPlan> result;
  for (const int own : parts) {
    const double share = static_cast<double>(own) / runtime::kTableParts;
    const auto of = [&](std::int64_t bytes) {
      return std::llround(share * static_cast<double>(bytes));
    };
    result.push_back({.share = share,
                      .max_bytes = of(all.max_bytes),
                      .replica_bytes = 0,
                      .step = {.in = of(all.step.in), .out = of(all.step.out)},
                      .replicated = of(all.replicated)});
  }
  return result;
}

}  // namespace

TablePlans tablePlans(const v1::JobSpec& spec) {
  TablePlans plans;
  for (const v1::TableSpec& table : spec.training().tables())
    plans.tables.push_back(planOf(table, spec));
  if (plans.tables.empty()) return plans;
  plans.expected = std::ranges::all_of(
      plans.tables, [](const TablePlan& table) { return table.expected.has_value(); });
  plans.servers = serversOf(plans, spec.ps().replicas());
  if (!runtime::keepsReplicas(spec)) return plans;
  addReplicas(plans.servers);
  if (plans.servers.size() == 1) plans.worker_replica_bytes = plans.servers[0].max_bytes;
  return plans;
}

}  // namespace trainyard::cli
