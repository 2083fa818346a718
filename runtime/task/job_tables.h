// The job's embedding tables as its parameter servers keep them.
#pragma once

#include <memory>
#include <vector>

#include "base/core/status.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/optimizer/optimizer.h"
#include "runtime/ps/shard.h"
#include "runtime/rows/row_part.h"
#include "runtime/task/shard_files.h"
#include "trainyard/v1/coordinator.pb.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::runtime {

struct JobTables {
  std::vector<std::unique_ptr<Optimizer>> optimizers;  // by table; of `configs`
  std::vector<rows::RowTableConfig> configs;
  bool empty() const { return configs.empty(); }
  // As manifests have them.
  std::vector<ManifestTable> described() const;
};
// INVALID_ARGUMENT names the field.
StatusOr<JobTables> jobTables(const v1::Training& training);

// A checkpoint has tables of these names and dims; slots may differ. INVALID_ARGUMENT has both.
Status checkSameTables(const Manifest& manifest, const std::vector<ManifestTable>& tables);
// Rows of a checkpoint for a table whose slots begin anew.
void beginSlots(const Optimizer& optimizer, TableRows& rows);

// Fills the shard's parts with what the epoch starts from. Errors name the file. Precondition: as
// of loadStart().
Status loadTables(const EpochStart& start, const JobTables& tables, ps::Shard& shard);

}  // namespace trainyard::runtime
