// The job's embedding tables as its parameter servers keep them.
#pragma once

#include <memory>
#include <vector>

#include "base/core/status.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/optimizer/optimizer.h"
#include "runtime/ps/shard.h"
#include "runtime/rows/row_part.h"
#include "trainyard/v1/coordinator.pb.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::runtime {

struct JobTables {
  std::vector<std::unique_ptr<Optimizer>> optimizers;  // by table; of `configs`
  std::vector<rows::RowTableConfig> configs;
  bool empty() const { return configs.empty(); }
};
// INVALID_ARGUMENT names the field.
StatusOr<JobTables> jobTables(const v1::Training& training);

// As manifests have them; of a job whose tables' optimizers are sound.
std::vector<ManifestTable> describeTables(const v1::Training& training);

// Fills the shard's parts as the epoch says: with no rows, or those of a checkpoint in `dir`, or of
// another run's. Errors name the file. Precondition: as of loadStart().
Status loadTables(const std::string& dir, const v1::EpochInfo& epoch, const JobTables& tables,
                  ps::Shard& shard);

}  // namespace trainyard::runtime
