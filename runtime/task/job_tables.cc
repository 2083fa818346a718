#include "runtime/task/job_tables.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "fmt/format.h"

namespace trainyard::runtime {
namespace {

rows::RowInitializer initializerOf(const v1::RowInitial& initial) {
  rows::RowInitializer initializer;
  initializer.scale = static_cast<float>(initial.scale());
  if (initial.distribution() == "Uniform") {
    initializer.kind = rows::RowInitializer::Kind::kUniform;
  } else if (initial.distribution() == "TruncatedNormal") {
    initializer.kind = rows::RowInitializer::Kind::kTruncatedNormal;
  }
  return initializer;
}

rows::RowEviction evictionOf(const v1::RowEviction& evict) {
  return {.after_steps = static_cast<std::int32_t>(evict.after_steps()),
          .below_norm = evict.below_norm(),
          .every_steps = std::max<std::int64_t>(1, evict.every_steps())};
}

const v1::OptimizerSpec& optimizerOf(const v1::TableSpec& table, const v1::Training& training) {
  return table.has_optimizer() ? table.optimizer() : training.optimizer();
}

// What manifests call the tables that count ids, of tables that do not admit all of them, in the
// order of RowPart::store().
std::vector<std::string> counting(const std::vector<rows::RowTableConfig>& configs) {
  std::vector<std::string> names;
  for (const rows::RowTableConfig& config : configs)
    if (config.options.admit_after > 1) names.push_back(config.options.name + ".counted");
  return names;
}

std::string textOf(const std::vector<ManifestTable>& tables) {
  std::string text;
  for (const ManifestTable& table : tables)
    text += fmt::format("{}{} [{}]", text.empty() ? "" : ", ", table.name, table.dim);
  return text.empty() ? "none" : text;
}

}  // namespace

StatusOr<JobTables> jobTables(const v1::Training& training) {
  JobTables tables;
  for (const v1::TableSpec& table : training.tables()) {
    const v1::OptimizerSpec& spec = optimizerOf(table, training);
    TY_ASSIGN_OR_RETURN(std::unique_ptr<Optimizer> optimizer, makeOptimizer(spec));
    rows::RowTableOptions options;
    options.name = table.name();
    options.dim = table.dim();
    options.max_rows = table.rows().max();
    options.expected_rows = table.rows().expected();
    options.on_full = table.on_full() == "RefuseNew" ? rows::RowTableOptions::OnFull::kRefuseNew
                                                     : rows::RowTableOptions::OnFull::kFail;
    options.initial = initializerOf(table.initial());
    options.seed = static_cast<std::uint64_t>(training.seed());
    options.evict = evictionOf(table.evict());
    options.admit_after = std::max<std::int64_t>(1, table.admit().occurrences());
    tables.configs.push_back({std::move(options), optimizer.get(), LearningRate(spec)});
    tables.optimizers.push_back(std::move(optimizer));
  }
  return tables;
}

std::vector<ManifestTable> JobTables::described() const {
  std::vector<ManifestTable> described;
  for (const rows::RowTableConfig& config : configs) {
    described.push_back({.name = config.options.name,
                         .dim = config.options.dim,
                         .slots = config.optimizer->slots()});
  }
  for (const std::string& name : counting(configs))
    described.push_back({.name = name, .dim = 0, .slots = {}});
  return described;
}

Status checkSameTables(const Manifest& manifest, const std::vector<ManifestTable>& tables) {
  const auto of_rows = [](std::vector<ManifestTable> all) {
    std::erase_if(all, [](const ManifestTable& table) { return table.dim == 0; });
    return all;
  };
  const std::vector<ManifestTable> held = of_rows(manifest.tables), wanted = of_rows(tables);
  const bool same = std::ranges::equal(held, wanted, [](const auto& a, const auto& b) {
    return a.name == b.name && a.dim == b.dim;
  });
  if (same) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("has tables {}, the job {}", textOf(held), textOf(wanted)));
}

void beginSlots(const Optimizer& optimizer, TableRows& rows) {
  rows.slots.assign(optimizer.slots().size(), {});
  for (std::size_t s = 0; s < rows.slots.size(); ++s)
    rows.slots[s].assign(rows.weights.size(), optimizer.initialSlot(s));
  std::ranges::fill(rows.steps, 0U);
}

namespace {

// What of the table is to be on this server.
Status walkRanges(const CheckpointReader& checkpoint, std::size_t table, const ps::Shard& shard,
                  const std::function<Status(TableRows)>& take) {
  for (const rows::PartitionRange range : shard.rows()->ranges())
    TY_RETURN_IF_ERROR(checkpoint.walkTable(table, range.first, range.last, take));
  return absl::OkStatus();
}

// A checkpoint of a job that admitted all ids has none.
Status loadCounted(const CheckpointReader& checkpoint, const JobTables& tables, ps::Shard& shard) {
  std::size_t store = tables.configs.size();
  for (const std::string& name : counting(tables.configs)) {
    const std::vector<ManifestTable>& held = checkpoint.manifest().tables;
    const auto found = std::ranges::find(held, name, &ManifestTable::name);
    const std::size_t number = store++;
    if (found == held.end()) continue;
    const auto at = static_cast<std::size_t>(found - held.begin());
    TY_RETURN_IF_ERROR(walkRanges(checkpoint, at, shard, [&](TableRows rows) {
      rows.table = number;
      shard.loadRows(rows);
      return absl::OkStatus();
    }));
  }
  return absl::OkStatus();
}

}  // namespace

Status loadTables(const EpochStart& start, const JobTables& tables, ps::Shard& shard) {
  if (tables.empty()) return absl::OkStatus();
  shard.clearRows(start.version());
  if (!start.checkpoint) return absl::OkStatus();
  for (std::size_t t = 0; t < tables.configs.size(); ++t) {
    TY_RETURN_IF_ERROR(walkRanges(*start.checkpoint, t, shard, [&](TableRows rows) {
      if (start.initial) beginSlots(*tables.optimizers[t], rows);
      shard.loadRows(rows);
      return absl::OkStatus();
    }));
  }
  return start.initial ? absl::OkStatus() : loadCounted(*start.checkpoint, tables, shard);
}

}  // namespace trainyard::runtime
