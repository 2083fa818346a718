// What a job's embedding tables hold and what is asked of them, as its tasks report it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/live/summed_counter.h"
#include "operator/cluster/cluster.h"
#include "trainyard/v1/agent.pb.h"

namespace trainyard::cli {

// A table over all servers and workers. What is counted is of this run, over restarts; rows and
// bytes are held now.
struct TableUse {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t bytes = 0;
  std::int64_t created = 0;
  std::int64_t refused = 0;
  std::int64_t evicted = 0;
  std::int64_t pulled = 0;
  std::int64_t pushed = 0;
  double hot = 0;                // part of what is pulled that goes to each server's busiest ids
  std::int64_t occurrences = 0;  // of ids in the samples of steps
  std::int64_t distinct = 0;     // of these, what workers asked for
};

// Not thread-safe.
class TableTotals {
 public:
  // The newest report of a task.
  void add(const control::TaskKey& task, const v1::RuntimeReport& report);
  // In the order in which tasks report them.
  std::vector<TableUse> sums() const;

 private:
  struct Counted {
    std::int64_t rows = 0;
    std::int64_t bytes = 0;
    double hot = 0;
    SummedCounter created, refused, evicted, pulled, pushed, occurrences, distinct;
  };
  std::vector<std::string> names_;
  std::map<std::string, std::map<control::TaskKey, Counted>> counted_;  // by table
};

}  // namespace trainyard::cli
