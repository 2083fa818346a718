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
  // `forgets`: rows go when they are old, and ids of the second table get none at first.
  explicit SampleTables(bool forgets = false);
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
  explicit LoneRows(bool forgets = false) : forgets_(forgets) {}
  // The next version.
  void take(const StepPlan& plan, std::int64_t step);
  // Of the samples that a worker computes.
  RowValues at(const StepPlan::Share& share) const;
  // Whether a server's copy holds the rows of its partitions, or what is counted of ids without
  // one, and no others.
  bool equals(const TableRows& copy) const;

 private:
  struct Row {
    std::uint32_t step = 0;
    std::uint32_t count = 0;
    std::vector<float> weights;
  };
  using Rows = std::map<std::pair<std::size_t, std::uint64_t>, Row>;  // by table and id
  void evict(std::int64_t step, Rows& rows) const;
  bool isAdmitted(const Rows::key_type& key, std::int64_t step, Row& sum);

  bool forgets_;
  Rows rows_;
  Rows counted_;
};

// What all pushes together make of the tables where each counts by itself.
class PushedRows {
 public:
  void bring(const StepPlan::Share& share, const RowValues& gradients);
  // That of these samples has been answered by all parts; without it a push may be in some.
  void finish(std::int64_t first);
  // It came too late for its step, and is in none.
  void drop(std::int64_t first) { pushes_.erase(first); }
  // It may be in some parts for good; others may bring the same samples again.
  void leave(std::int64_t first);
  // What is wrong with the rows of all servers; empty: nothing. `aggregate`: how many pushes every
  // update was made of; 0: of different numbers, so that weights are not compared.
  std::string compare(const std::vector<TableRows>& rows, int aggregate) const;

 private:
  struct Sum {
    std::uint64_t least = 0;  // occurrences in pushes that are finished
    std::uint64_t most = 0;
    std::vector<double> weights;
  };
  struct Push {
    StepPlan::Share share;
    RowValues gradients;
    bool finished = false;
  };
  using Sums = std::map<std::pair<std::size_t, std::uint64_t>, Sum>;
  Sums sums() const;

  static void add(const Push& push, Sums& sums);

  std::map<std::int64_t, Push> pushes_;  // by position
  std::vector<Push> left_;
};

}  // namespace trainyard::runtime::rows
