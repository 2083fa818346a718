// What `trainyard plan` says of a job's embedding tables.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainyard/v1/job.pb.h"

namespace trainyard::cli {

// Bytes are of all servers together.
struct TablePlan {
  std::string name;
  std::int64_t dim = 0;
  std::int64_t row_bytes = 0;  // of a row that is there: weights, slots, header, its place
  std::int64_t max_rows = 0;
  std::int64_t max_bytes = 0;
  // The most that a step can move: every sample looks up an id of its own in each of the table's
  // features, of which a column of several ids counts as one.
  std::int64_t in_per_step = 0;   // ids that are asked for, and gradients
  std::int64_t out_per_step = 0;  // rows
};

// Of a job whose optimizers are sound.
std::vector<TablePlan> tablePlans(const v1::JobSpec& spec);

}  // namespace trainyard::cli
