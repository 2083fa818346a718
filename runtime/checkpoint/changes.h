// What has become of tables' rows from one checkpoint of a run to a later one: what somebody needs
// who has those of the former.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/core/status.h"
#include "runtime/checkpoint/checkpoint.h"

namespace trainyard::runtime {

// Whether the state of `before` is one that `after` has come from: it is of the same job, which has
// not gone back behind it meanwhile. False also where that is not known any more.
bool comesFrom(const Manifest& after, const Manifest& before);

// Calls `sink` with rows of a table (by number in the manifest of `after`) that have changed or
// come since `before`, and the ids of those that have gone (TableRows::gone; among them may be some
// that have come and gone since), piece by piece, ascending. Where `after` is a delta of `before`,
// or a delta of such a one, nothing else is read. Precondition: comesFrom(). Errors as of
// CheckpointReader::walkTable().
Status walkChanges(const CheckpointReader& before, const CheckpointReader& after, std::size_t table,
                   const std::function<Status(TableRows)>& sink);

struct ExportedTable {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t gone = 0;
};
// Writes a file as exportSafetensors() does, without slots, with these rows of tables alone: of
// each also "table/gone" (I64), ids of rows that are to be removed before those of the file are
// taken; empty arrays are left out; and the metadata "trainyard.since", the step of `before`. Null:
// all rows, and no such metadata. `beside` as there. What has changed is held in memory.
StatusOr<std::vector<ExportedTable>> exportChanges(const CheckpointReader* before,
                                                   const CheckpointReader& after,
                                                   const std::string& path,
                                                   const std::string& beside = "");

}  // namespace trainyard::runtime
