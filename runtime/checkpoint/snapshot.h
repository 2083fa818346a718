// The state of a model, or of a server's part of it, between files and whoever trains it: by chunk
// of the job's placement.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <string>
#include <vector>

#include "runtime/checkpoint/slot_arrays.h"

namespace trainyard::runtime {

// Rows of one of the job's tables that are in a range of its partitions, ascending by partition and
// id. All arrays by row.
struct TableRows {
  std::size_t table = 0;            // in the order of the job
  int first = 0;                    // partition
  std::vector<std::int64_t> sizes;  // rows of each of the range's partitions
  std::vector<std::uint64_t> ids;
  std::vector<std::uint32_t> steps;       // that changed them last
  std::vector<std::uint32_t> counts;      // occurrences
  std::vector<float> weights;             // dim each
  std::vector<std::vector<float>> slots;  // in the order of the table's optimizer
  // Of a delta: rows that its base may have and that are not there any more, in any order. Of what
  // goes to another server: rows that have gone, for its later deltas, and the steps that took
  // them.
  std::vector<std::uint64_t> gone = {};
  std::vector<std::uint32_t> gone_steps = {};
};

// None, of partitions from `first` on whose sizes are to follow.
inline TableRows emptyRows(std::size_t table, int first, std::size_t slots) {
  TableRows rows;
  rows.table = table;
  rows.first = first;
  rows.slots.resize(slots);
  return rows;
}

// Rows keep steps cut to 32 bits: how many steps this one came after `since`, where both are less
// than 2^31 apart.
constexpr std::int32_t stepsAfter(std::uint32_t step, std::int64_t since) {
  return static_cast<std::int32_t>(step - static_cast<std::uint32_t>(since));
}

// Rows of one table in a range of its partitions, as they were at a snapshot's version; they may
// still be in their holder's tables, where training goes on.
struct LateRows {
  std::size_t table = 0;
  int first = 0;                    // partition
  std::vector<std::int64_t> sizes;  // as TableRows; empty of a delta, where only read() tells
  // Once, from any thread.
  std::function<TableRows()> read;
};

// What a delta checkpoint is to be read on top of.
struct DeltaBase {
  std::string manifest;       // its file name; "": what there is is whole
  std::int64_t version = -1;  // of all that is in it
  bool any() const { return !manifest.empty(); }
};

// All chunks of one holder at one version, ready to be written; and its parts of the job's tables.
struct Snapshot {
  std::int64_t epoch = 0;
  std::int64_t version = 0;
  DeltaBase base = {};  // of the rows alone; chunks are whole
  struct ChunkCopy {
    std::uint32_t chunk = 0;
    std::shared_ptr<const std::pmr::vector<float>> weights;  // shared with who holds the chunk
    SlotArrays slots;                                        // likewise
  };
  std::vector<ChunkCopy> chunks;
  std::vector<LateRows> tables;  // ascending by table and partition
};

// Takes one chunk that was read: its version, weights and slots.
using LoadChunk =
    std::function<void(std::uint32_t chunk, std::int64_t version, std::vector<float> weights,
                       std::vector<std::vector<float>> slots)>;

}  // namespace trainyard::runtime
