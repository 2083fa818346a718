// Embedding tables for tests of whole jobs: what samples look up, what they say of the rows that
// they find, and what all of it makes of the tables without any distribution.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/checkpoint/snapshot.h"
#include "runtime/data/step_plan.h"
#include "runtime/rows/row_part.h"
#include "runtime/rows/row_worker.h"
#include "runtime/train/row_exchange.h"

namespace trainyard::runtime::rows {

class SampleTables {
 public:
  SampleTables();
  std::vector<RowTableConfig> configs;
  std::vector<WorkerTable> workers;

 private:
  v1::OptimizerSpec spec_;
  std::unique_ptr<Optimizer> optimizer_;
};

// Of the samples at these positions.
RowIds rowIdsAt(std::int64_t first, int count);
// A sample's gradient depends on all rows that it finds, so that an old one shows later.
RowValues rowGradients(const StepPlan::Share& share, const RowValues& rows);

// All tables at one version.
class LoneRows {
 public:
  // The next version.
  void take(const StepPlan& plan, std::int64_t step);
  // Of the samples that a worker computes.
  RowValues at(const StepPlan::Share& share) const;
  // Whether a server's copy holds the rows of its partitions, and no others.
  bool equals(const TableRows& copy) const;

 private:
  struct Row {
    std::uint32_t step = 0;
    std::uint32_t count = 0;
    std::vector<float> weights;
  };
  std::map<std::pair<std::size_t, std::uint64_t>, Row> rows_;  // by table and id
};

}  // namespace trainyard::runtime::rows
