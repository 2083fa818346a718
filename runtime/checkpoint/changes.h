// What has become of tables' rows from one checkpoint of a run to a later one: what somebody needs
// who has those of the former.
#pragma once

#include <cstddef>
#include <functional>

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

}  // namespace trainyard::runtime
