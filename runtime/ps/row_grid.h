// Where the job's tables are: parts of their partitions (runtime/rows/row_part.h) on its parameter
// servers. To whoever asks servers, parts are numbers behind those of the chunks. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/rows/row_part.h"
#include "runtime/rows/row_worker.h"

namespace trainyard::runtime::ps {

// The same in all processes of a job; empty where it has no tables.
class RowGrid {
 public:
  RowGrid() = default;
  // Behind so many chunks. The cut depends on neither number of servers: only who holds what does.
  // A server's parts are neighbours. Precondition: servers >= 1.
  RowGrid(std::size_t chunks, int servers);

  const std::vector<rows::PartitionRange>& parts() const { return parts_; }
  const std::vector<int>& psOfPart() const { return ps_of_part_; }
  std::uint32_t numberOf(std::size_t part) const {
    return first_ + static_cast<std::uint32_t>(part);
  }
  // What the number of a request means: a part in a step, or one that is only read, outside of
  // steps, under a number of its own. Nothing: a chunk, or none.
  struct Meaning {
    std::size_t part = 0;
    bool reads = false;
  };
  std::optional<Meaning> meaningOf(std::uint32_t number) const;
  std::uint32_t readNumberOf(std::size_t part) const { return numberOf(parts_.size() + part); }

 private:
  std::uint32_t first_ = 0;
  std::vector<rows::PartitionRange> parts_;
  std::vector<int> ps_of_part_;
};

}  // namespace trainyard::runtime::ps
