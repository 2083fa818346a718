// What `trainyard plan` says of a job's embedding tables.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/v1/job.pb.h"

namespace trainyard::cli {

// Bytes of a step: `in`, what servers are sent (ids, and gradients of the same ids), and `out`,
// rows. Headers are not counted.
struct StepBytes {
  std::int64_t in = 0;
  std::int64_t out = 0;
};

// Bytes are of all servers together.
struct TablePlan {
  std::string name;
  std::int64_t dim = 0;
  std::int64_t row_bytes = 0;  // of a row that is there: weights, slots, header, its place
  std::int64_t max_rows = 0;
  std::int64_t max_bytes = 0;
  std::int64_t expected_rows = 0;  // as the job says; 0: it does not
  std::int64_t expected_bytes = 0;
  // The most that a step can move: every sample looks up an id of its own in each of the table's
  // features, of which a column of several ids counts as one.
  StepBytes most;
  // What it is expected to move, an id once for each worker. Known of data that are made up.
  std::optional<StepBytes> expected;
  // Of these, what goes to replicas: an id once, with its mean gradient; without common steps once
  // for each worker. 0: there are no replicas.
  std::int64_t replicated = 0;
};

// One server's part of all tables together: partitions are dealt out, and ids to partitions evenly.
struct TableServerPlan {
  double share = 0;
  std::int64_t max_bytes = 0;
  std::int64_t replica_bytes = 0;  // at most, of another server's part
  StepBytes step;                  // expected where that is known of all tables, else the most
  std::int64_t replicated = 0;     // of a step: what goes to the replica's server
};

struct TablePlans {
  std::vector<TablePlan> tables;
  std::vector<TableServerPlan> servers;  // none without tables
  bool expected = false;                 // of all tables
  // At most, of the first worker, which keeps the replicas of an only server; 0: it keeps none.
  std::int64_t worker_replica_bytes = 0;
};

// Of a job whose optimizers are sound.
TablePlans tablePlans(const v1::JobSpec& spec);

}  // namespace trainyard::cli
