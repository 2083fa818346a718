#include "runtime/rows/row_worker.h"

#include <algorithm>
#include <utility>

#include "base/core/check.h"

namespace trainyard::runtime::rows {
namespace {

// Those of the set that are in `range`; `sums` is by id.
RowGradients gradientsOf(const RowSet& set, std::size_t dim, std::span<const float> sums,
                         PartitionRange range) {
  const auto [first, last] = set.within(range);
  const auto ids = set.ids().subspan(first, last - first);
  const auto counts = set.counts().subspan(first, last - first);
  const auto rows = sums.subspan(first * dim, (last - first) * dim);
  RowGradients gradients;
  gradients.ids.assign(ids.begin(), ids.end());
  gradients.counts.assign(counts.begin(), counts.end());
  gradients.sums.assign(rows.begin(), rows.end());
  return gradients;
}

}  // namespace

std::vector<PartitionRange> cutIntoParts(int parts) {
  TY_CHECK(1 <= parts && parts <= kPartitions, "a part has at least one partition");
  std::vector<PartitionRange> cut;
  for (int p = 0; p < parts; ++p)
    cut.push_back({kPartitions * p / parts, kPartitions * (p + 1) / parts});
  return cut;
}

RowWorker::RowWorker(std::vector<WorkerTable> tables, std::vector<PartitionRange> parts)
    : parts_(std::move(parts)) {
  tables_.reserve(tables.size());
  for (WorkerTable& table : tables) {
    const std::uint64_t salt = saltOf(table.name);
    tables_.push_back({std::move(table), RowSet(salt), {}, RowSet(salt)});
  }
}

void RowWorker::enter(std::int64_t epoch, int rank) {
  epoch_ = epoch;
  rank_ = rank;
  version_ = -1;
  here_.clear();
  missing_ = 0;
}

void RowWorker::want(std::int64_t version,
                     std::span<const std::vector<std::uint64_t>> occurrences) {
  TY_CHECK(occurrences.size() == tables_.size(), "each table has its ids");
  version_ = version;
  here_.assign(parts_.size(), false);
  missing_ = parts_.size();
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    tables_[t].set.assign(occurrences[t]);
    tables_[t].rows.resize(tables_[t].set.ids().size() * tables_[t].table.dim);
  }
}

RowRequest RowWorker::request(std::size_t part, bool with_gradients) const {
  RowRequest request;
  request.epoch = epoch_;
  request.rank = rank_;
  request.version = version_;
  for (const Table& table : tables_) {
    const auto [first, last] = table.set.within(parts_[part]);
    const auto ids = table.set.ids().subspan(first, last - first);
    request.ids.emplace_back(ids.begin(), ids.end());
  }
  if (!with_gradients) return request;
  request.step = brought_step_;
  request.gradients = brought_[part];
  return request;
}

void RowWorker::beginBringing(std::int64_t step) {
  TY_CHECK(complete() && version_ == step, "a step is computed with rows of its version");
  brought_step_ = step;
  brought_.assign(parts_.size(), {});
}

void RowWorker::bringTable(std::size_t t, const RowSet& set, std::span<const float> gradients) {
  const std::size_t dim = tables_[t].table.dim;
  sums_.resize(set.ids().size() * dim);
  set.sum(gradients, dim, sums_);
  for (std::size_t p = 0; p < parts_.size(); ++p)
    brought_[p].push_back(gradientsOf(set, dim, sums_, parts_[p]));
}

void RowWorker::bring(std::int64_t step, std::span<const std::vector<float>> gradients) {
  TY_CHECK(gradients.size() == tables_.size(), "each table has its gradients");
  beginBringing(step);
  for (std::size_t t = 0; t < tables_.size(); ++t) bringTable(t, tables_[t].set, gradients[t]);
}

void RowWorker::bring(std::int64_t step, std::span<const std::vector<std::uint64_t>> ids,
                      std::span<const std::vector<std::uint32_t>> counts,
                      std::span<const std::vector<float>> gradients) {
  TY_CHECK(ids.size() == tables_.size() && counts.size() == tables_.size() &&
               gradients.size() == tables_.size(),
           "each table has its ids, and their gradients");
  beginBringing(step);
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    tables_[t].brought.assign(ids[t], counts[t]);
    bringTable(t, tables_[t].brought, gradients[t]);
  }
}

bool RowWorker::onAnswer(std::size_t part, const RowAnswer& answer) {
  if (answer.code != RowAnswer::Code::kRows || answer.epoch != epoch_ || answer.version != version_)
    return false;
  if (part >= here_.size() || here_[part] || answer.rows.size() != tables_.size()) return false;
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    const auto [first, last] = tables_[t].set.within(parts_[part]);
    if (answer.rows[t].size() != (last - first) * tables_[t].table.dim) return false;
  }
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    const std::size_t first = tables_[t].set.within(parts_[part]).first;
    std::ranges::copy(answer.rows[t], tables_[t].rows.begin() + static_cast<std::ptrdiff_t>(
                                                                    first * tables_[t].table.dim));
  }
  here_[part] = true;
  --missing_;
  return true;
}

std::size_t RowWorker::wantedOf(std::size_t part, std::size_t table) const {
  const auto [first, last] = tables_[table].set.within(parts_[part]);
  return last - first;
}

std::vector<float> RowWorker::rows(std::size_t table) const {
  TY_CHECK(complete(), "rows are looked at when all are here");
  const Table& own = tables_[table];
  std::vector<float> by_occurrence(own.set.places().size() * own.table.dim);
  own.set.spread(own.rows, own.table.dim, by_occurrence);
  return by_occurrence;
}

}  // namespace trainyard::runtime::rows
