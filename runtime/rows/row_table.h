// One embedding table's rows in some of the job's partitions: read by id, created by the first
// update, updated row by row.
//
// What is not there reads as it begins (initial_row.h), so a pull creates nothing, may be lost and
// repeated, and the table is a function of the updates alone: the same bits whatever the order of
// arrival, the cut of the partitions into servers, and what was pulled.
//
// Rows that an update does not name do not move: momentum does not run on, Adam's and RMSProp's
// averages do not decay, and Adam's bias is corrected by the job's step and not by how often the
// row was updated (TensorFlow's LazyAdam; its plain Adam decays the whole table in every step).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/core/status.h"
#include "runtime/optimizer/optimizer.h"
#include "runtime/rows/initial_row.h"
#include "runtime/rows/row_id.h"
#include "runtime/rows/row_index.h"
#include "runtime/rows/row_slab.h"
#include "runtime/rows/row_undo.h"

namespace trainyard::runtime::rows {

// Rows that go by themselves. Partition p is looked through at the versions v with
// v mod every_steps = p mod every_steps: which rows go depends on the updates alone.
struct RowEviction {
  std::int32_t after_steps = 0;  // no gradient has come for so many steps; 0: whatever their age
  double below_norm = 0;         // of the weights, Euclidean; 0: whatever it is
  std::int64_t every_steps = 1;
  bool any() const { return after_steps > 0 || below_norm > 0; }
};

struct RowTableOptions {
  std::string name;
  int dim = 1;
  std::int64_t max_rows = 0;  // of the job's whole table; see partitionCap()
  // As many it is expected to have, at most max_rows: room to find them is made at once, 11 to 21
  // bytes each. 0: as they come, when a partition that grows holds up a step.
  std::int64_t expected_rows = 0;
  // Beyond max_rows: an update fails, or what is new is left out.
  enum class OnFull { kFail, kRefuseNew };
  OnFull on_full = OnFull::kFail;
  RowInitializer initial;
  std::uint64_t seed = 0;
  RowEviction evict = {};
  // Occurrences of an id before it gets a row (RowAdmission). Above 1, what is not there reads as
  // zeros: an id that is hardly ever met shall not add noise.
  std::int64_t admit_after = 1;
};

// Of one step. All arrays by id, which are unique.
struct RowUpdate {
  UpdateContext context;
  std::uint32_t step = 0;                 // noted in the rows
  std::span<const std::uint64_t> ids;     // in any order
  std::span<const std::uint32_t> counts;  // occurrences in the step; empty: one each
  std::span<const float> gradients;       // mean, `dim` each
};

struct RowUpdateResult {
  std::int64_t created = 0;
  std::int64_t refused = 0;
};

// A row as it is kept. Valid until the next update or load.
struct RowView {
  std::uint64_t id = 0;
  std::uint32_t step = 0;
  std::uint32_t count = 0;
  std::span<const float> weights;
  std::span<const float> slots;  // the optimizer's arrays one after the other, `dim` each
};

// Not thread-safe; pulls may go on side by side. Ids of other partitions are a broken precondition.
class RowTable {
 public:
  // `optimizer` must outlive it.
  RowTable(RowTableOptions options, const Optimizer& optimizer, PartitionRange range = {});

  // Copies the weights of each id, `dim` each, to `out`. Ids may repeat. Fastest where they are
  // sorted by partition.
  void pull(std::span<const std::uint64_t> ids, std::span<float> out) const;

  // INVALID_ARGUMENT names table and id of a gradient that is not finite; nothing is changed then.
  // RESOURCE_EXHAUSTED names table, rows and max_rows, under kFail: the rows before that one have
  // had their update, so that the step is to be given up. `undo`, where there is one, becomes what
  // revert() needs, after an error too.
  StatusOr<RowUpdateResult> update(const RowUpdate& update, RowUndo* undo = nullptr);
  // After the update of `step` that has made `version`: takes those rows away of which
  // options().evict says so, but none that this step has touched, and adds them to `undo`, which
  // the update has filled. How many.
  std::int64_t evict(std::int64_t version, std::uint32_t step, RowUndo& undo);
  // After an update that has filled `undo`, which had none of these ids: they go too, and are added
  // to it. Precondition: they are there.
  void remove(std::span<const std::uint64_t> ids, RowUndo& undo);
  // What update() says of gradients.
  Status checkFinite(std::span<const std::uint64_t> ids, std::span<const float> gradients) const;
  // The table as it was before the update that has filled `undo`, which was the last one.
  void revert(const RowUndo& undo);
  // pull() of that version.
  void pullBefore(const RowUndo& undo, std::span<const std::uint64_t> ids,
                  std::span<float> out) const;

  // So many rows will be loaded into one partition: room to find them is made at once.
  void expect(int partition, std::int64_t rows);
  // A row of a checkpoint or of another server. Precondition: it is not there.
  void load(const RowView& row);
  // Those of one partition, ascending by id.
  std::vector<RowView> rows(int partition) const;
  // use(const RowHeader&, std::span<const float>) with each of one partition, in any order.
  template <typename Use>
  void forEachRow(int partition, Use use) const {
    const RowSlab& slab = slabOf(partition);
    for (std::uint32_t row = 0; row < slab.size(); ++row) use(slab.header(row), slab.floats(row));
  }
  std::int64_t sizeOf(int partition) const { return slabOf(partition).size(); }
  // Of a row: its weights and the optimizer's arrays.
  std::size_t rowFloats() const { return (1 + slots()) * dim_; }
  bool has(std::uint64_t id) const;
  // 0: it is not there.
  std::uint32_t countOf(std::uint64_t id) const;

  std::int64_t size() const { return size_; }
  const PartitionRange& range() const { return range_; }
  const RowTableOptions& options() const { return options_; }
  std::size_t slots() const { return optimizer_.slots().size(); }
  // All that is taken from the system for it.
  std::int64_t bytes() const;

 private:
  struct Partition {
    RowIndex index;
    RowSlab slab;
  };
  // A row that is there, or kNone.
  struct Place {
    std::uint64_t hash = 0;
    Partition* partition = nullptr;
    std::uint32_t row = RowIndex::kNone;
  };
  const RowSlab& slabOf(int partition) const;
  Partition& partitionOf(std::uint64_t hash) const;
  Place find(std::uint64_t id, std::uint64_t hash) const;
  void prefetch(std::span<const std::uint64_t> ids, std::span<Place> places) const;
  // A row whose floats are anything.
  Place addRow(std::uint64_t id, std::uint64_t hash);
  Place create(std::uint64_t id, std::uint64_t hash);
  void erase(const Place& place);
  bool isToGo(const RowView& row, std::uint32_t step) const;
  void readAbsent(std::uint64_t id, std::span<float> to) const;
  void removeRow(const Place& place, RowUndo& undo);
  std::int64_t evictFrom(Partition& partition, std::uint32_t step, RowUndo& undo);
  RowView view(const RowSlab& slab, std::uint32_t row) const;
  void fill(const Place& place, const RowUndo& undo, std::size_t entry);
  void note(std::uint64_t id, const Place& place, RowUndo& undo) const;
  Status full() const;
  StatusOr<RowUpdateResult> change(const RowUpdate& update, RowUndo* undo);
  StatusOr<std::size_t> placeGroup(const RowUpdate& update, std::size_t begin, std::size_t end,
                                   std::span<Place> places, RowUndo* undo, RowUpdateResult& result);
  void applyGroup(const UpdateContext& context, std::span<const Place> places,
                  std::span<const float> gradients);

  RowTableOptions options_;  // not changed; not const, so that a table can be moved
  const Optimizer& optimizer_;
  const PartitionRange range_;
  const std::uint64_t salt_;
  const std::uint64_t key_;  // of first values
  const std::int64_t cap_;   // of a partition
  const std::size_t dim_;
  mutable std::vector<Partition> partitions_;
  std::int64_t size_ = 0;
  // Of a group, while it is updated: its weights, then each of the optimizer's slots.
  std::vector<float> group_;
  std::vector<float> gradients_;
};

}  // namespace trainyard::runtime::rows
