// The rules of deploy/crds.yaml on embedding tables and on the data that has ids for them.
#pragma once

#include "operator/job/internal/validate.h"
#include "operator/job/internal/view.h"

namespace trainyard::control::internal {

// spec.training.data: its columns, each by itself and together. Says nothing of formats without
// columns.
void checkColumns(const View& data, ProblemList& problems);

// spec.training.tables, over the columns, and what of the job does not go with them.
void checkTables(const View& spec, ProblemList& problems);

}  // namespace trainyard::control::internal
