// A worker's rows on their way: bodies of requests to parts of the job's tables, and where answers
// go. What the machine (SyncWorker) knows as chunks has its contents here.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/ps/row_body.h"
#include "runtime/ps/row_grid.h"
#include "runtime/ps/worker_machine.h"
#include "runtime/rows/row_worker.h"
#include "runtime/tensor/element_type.h"
#include "runtime/train/row_exchange.h"
#include "runtime/train/turn.h"
#include "trainyard/v1/agent.pb.h"

namespace trainyard::runtime::ps {

struct RowLinkOptions {
  std::vector<rows::WorkerTable> tables;
  RowGrid grid;
  // Of whose samples the machine says that it wants rows.
  RowIdsAt ids;
  // Modes Async and BoundedDelay: rows are of samples and not of a version, as they are when a
  // server answers.
  bool asynchronous = false;
};

// Not thread-safe: the owner locks. Memory that was given as a target stays until the part is given
// another one.
class RowLink {
 public:
  RowLink(RowLinkOptions options, ElementType wire);

  const RowGrid& grid() const { return options_.grid; }
  bool isPart(std::uint32_t number) const { return options_.grid.meaningOf(number).has_value(); }
  bool isRead(std::uint32_t number) const;

  // A turn begins whose rows are all here.
  TurnRows beginTurn(const Turn& turn);
  // Sums over the turn's samples, of the rows that it began with, or of any; they are what the next
  // requests with a payload carry. False: the turn is void, other rows have been asked for since it
  // began.
  bool bring(const RowValues& gradients);
  bool bring(const RowSums& sums);
  // The body of what the machine sends; completes its header.
  RowBytes bodyOf(Send& send);

  // Reads rows beside the requests of steps: begin, then a request for each part, until all are
  // here; `version` may be rows::kNewestRows. `of_step`: it is a step that looks them up.
  void beginRead(std::int64_t version, const RowIds& ids, bool of_step);
  RowBytes readBodyOf(std::size_t part, Send& send);
  bool readComplete() const { return reader_.complete(); }
  RowValues readRows() const;

  // Floats of an answer to the newest request under this number.
  std::size_t elementsOf(std::uint32_t number) const;
  std::span<float> target(std::uint32_t number, std::size_t elements);
  // What was written there is the answer with this header.
  void stored(std::uint32_t number, const v1::ChunkReplyHeader& header);

  // What steps have looked up, by table.
  void fillReport(v1::RuntimeReport& report) const;

 private:
  // What rows are asked for. Asynchronous: `version` is Send::rows_wish; of which epoch they are
  // does not matter.
  struct Key {
    std::int64_t epoch = -1;
    std::uint32_t rank = 0;
    std::int64_t version = -1;
    StepPlan::Share share;
    bool operator==(const Key&) const = default;
  };
  struct Arriving {
    std::uint64_t wish = 0;  // for which it was given as a target
    std::vector<float> floats;
  };
  Key keyOf(const Send& send) const;
  std::uint64_t wishOf(bool reads) const { return reads ? read_wish_ : wish_; }
  RowValues valuesOf(const rows::RowWorker& worker) const;
  void count(const RowIds& ids, const rows::RowWorker& worker);

  const RowLinkOptions options_;
  const ElementType wire_;
  rows::RowWorker worker_;
  struct Counts {
    std::uint64_t occurrences = 0;
    std::uint64_t distinct = 0;
  };
  std::vector<Counts> counts_;  // by table
  Key key_;
  RowIds ids_;  // of the key
  Key turn_;    // what rows the turn has
  rows::RowWorker reader_;
  // Counts what was wanted, so that what arrives late is known.
  std::uint64_t wish_ = 0;
  std::uint64_t read_wish_ = 0;
  std::map<std::uint32_t, Arriving> arriving_;  // by number
};

}  // namespace trainyard::runtime::ps
