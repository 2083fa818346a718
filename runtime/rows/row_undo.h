// What a step has changed in a table, as it was before: so that the version before it can still be
// read by an epoch that begins there, and comes back where the step cannot be taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace trainyard::runtime::rows {

// A value of one thread at a time, reading included; filled and read by RowTable.
class RowUndo {
 public:
  struct Entry {
    std::uint64_t id = 0;
    std::uint32_t step = 0;
    std::uint32_t count = 0;
    bool created = false;  // by the step: it was not there before
    bool evicted = false;  // by the step: it is not there any more
  };

  // Entries in the order of the update, then of the eviction, whose ids are each there once.
  std::span<const Entry> entries() const { return entries_; }
  // Weights and slots as they lie in a row; empty where the row was created.
  std::span<const float> floats(std::size_t entry) const {
    return std::span(floats_).subspan(begins_[entry], begins_[entry + 1] - begins_[entry]);
  }
  // Index of an id's entry, or -1. The first one after an add() sorts what is there: hardly any
  // step is looked at again.
  std::ptrdiff_t find(std::uint64_t id) const;

  void add(const Entry& entry, std::span<const float> floats);
  // Keeps its memory.
  void clear();

 private:
  std::vector<Entry> entries_;
  std::vector<std::size_t> begins_{0};
  std::vector<float> floats_;
  mutable std::vector<std::uint32_t> by_id_;  // entries, ascending by id; of the last find()
};

}  // namespace trainyard::runtime::rows
