#include "runtime/checkpoint/changes.h"

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/checkpoint/delta_rows.h"

namespace trainyard::runtime {
namespace {

using Sink = std::function<Status(TableRows)>;

// By number in the manifest of the one, in that of the other; nothing: it is not there.
std::optional<std::size_t> sameTable(const Manifest& of, std::size_t table, const Manifest& other) {
  const auto found = std::ranges::find(other.tables, of.tables[table].name, &ManifestTable::name);
  if (found == other.tables.end()) return std::nullopt;
  return static_cast<std::size_t>(found - other.tables.begin());
}

Status walkRange(const CheckpointReader& reader, std::optional<std::size_t> table, int first,
                 int last, std::vector<TableRows>& pieces) {
  if (!table) return absl::OkStatus();
  return reader.walkTable(*table, first, last, [&](TableRows rows) {
    pieces.push_back(std::move(rows));
    return absl::OkStatus();
  });
}

int lastOf(const TableRows& rows) {
  return rows.first + static_cast<int>(rows.sizes.size());
}

// Leaves those out that are among the rows.
void keepGone(std::vector<std::uint64_t> gone, TableRows& rows) {
  const std::unordered_set<std::uint64_t> there(rows.ids.begin(), rows.ids.end());
  std::unordered_set<std::uint64_t> told;
  for (const std::uint64_t id : gone) {
    if (!there.contains(id) && told.insert(id).second) rows.gone.push_back(id);
  }
}

// Whether `before` is in the chain, and from there on the table is in deltas that are cut in the
// same way: ids that have gone are told of a whole piece.
bool isInChain(const CheckpointReader& after, std::size_t table, const std::string& before) {
  const auto cuts = after.cutsOf(table);
  for (const CheckpointReader* one = &after; one->base() != nullptr; one = one->base()) {
    const auto there = sameTable(after.manifest(), table, one->manifest());
    if (!there || !one->isDelta(*there) || one->cutsOf(*there) != cuts) return false;
    if (one->base()->manifest().fileName() == before) return true;
  }
  return false;
}

// Changes from `before`, which is in the chain, to `after`, in partitions [first, last).
Status walkChain(const CheckpointReader& after, std::size_t table, const std::string& before,
                 int first, int last, const Sink& sink) {
  return after.walkOwnTable(table, first, last, [&](TableRows delta) {
    if (after.base()->manifest().fileName() == before) return sink(std::move(delta));
    const auto there = sameTable(after.manifest(), table, after.base()->manifest());
    std::vector<TableRows> former;
    std::vector<std::uint64_t> gone;
    if (there) {
      TY_RETURN_IF_ERROR(
          walkChain(*after.base(), *there, before, delta.first, lastOf(delta), [&](TableRows rows) {
            gone.insert(gone.end(), rows.gone.begin(), rows.gone.end());
            former.push_back(std::move(rows));
            return absl::OkStatus();
          }));
    }
    gone.insert(gone.end(), delta.gone.begin(), delta.gone.end());
    TableRows merged = mergeRows(former, delta);
    keepGone(std::move(gone), merged);
    return sink(std::move(merged));
  });
}

// Of `rows` those that a step from `since` on has changed.
TableRows changedIn(const TableRows& rows, std::int64_t since) {
  TableRows changed = emptyRows(rows.table, rows.first, rows.slots.size());
  std::size_t at = 0;
  for (const std::int64_t size : rows.sizes) {
    const std::size_t before = changed.ids.size(), end = at + static_cast<std::size_t>(size);
    for (; at < end; ++at) {
      if (stepsAfter(rows.steps[at], since) >= 0) appendRow(rows, at, changed);
    }
    changed.sizes.push_back(static_cast<std::int64_t>(changed.ids.size() - before));
  }
  return changed;
}

}  // namespace

bool comesFrom(const Manifest& after, const Manifest& before) {
  if (after.job_uid != before.job_uid || after.step < before.step) return false;
  if (after.epoch == before.epoch || before.fileName() == after.history_from) return true;
  return after.history > 0 && before.epoch >= after.history && before.epoch < after.epoch;
}

Status walkChanges(const CheckpointReader& before, const CheckpointReader& after, std::size_t table,
                   const Sink& sink) {
  const std::string name = before.manifest().fileName();
  if (isInChain(after, table, name))
    return walkChain(after, table, name, 0, kTablePartitions, sink);
  const auto there = sameTable(after.manifest(), table, before.manifest());
  return after.walkTable(table, 0, kTablePartitions, [&](const TableRows& now) {
    std::vector<TableRows> former;
    TY_RETURN_IF_ERROR(walkRange(before, there, now.first, lastOf(now), former));
    const std::unordered_set<std::uint64_t> left(now.ids.begin(), now.ids.end());
    TableRows changed = changedIn(now, before.manifest().step);
    for (const TableRows& rows : former) {
      std::size_t at = 0;
      for (std::size_t p = 0; p < rows.sizes.size(); ++p) {
        const int partition = rows.first + static_cast<int>(p);
        const bool covered = now.first <= partition && partition < lastOf(now);
        for (std::int64_t i = 0; i < rows.sizes[p]; ++i, ++at) {
          if (covered && !left.contains(rows.ids[at])) changed.gone.push_back(rows.ids[at]);
        }
      }
    }
    return sink(std::move(changed));
  });
}

}  // namespace trainyard::runtime
