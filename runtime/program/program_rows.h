// Rows of the job's embedding tables for a program: those that it looks up in a turn, those that
// came with the turn because it had looked ahead, and the gradients that it hands over.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/core/status.h"
#include "runtime/session/row_messages.h"
#include "runtime/session/serve.h"
#include "runtime/train/row_exchange.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::runtime {

// What a program has said of samples that come. Thread-safe.
class LookedAhead {
 public:
  explicit LookedAhead(std::size_t tables) : tables_(tables) {}
  void put(session::LookAhead ahead);
  // As RowIdsAt: no ids of samples of which nothing was said.
  RowIds at(std::int64_t first, int count) const;

 private:
  const std::size_t tables_;
  mutable std::mutex mutex_;
  std::deque<session::LookAhead> ahead_;  // the newest last
};

// Of the session's thread, but for at().
class ProgramRows final : public session::RowHost {
 public:
  explicit ProgramRows(std::vector<session::SessionTable> tables);

  bool none() const { return tables_.empty(); }
  RowIds at(std::int64_t first, int count) const { return ahead_.at(first, count); }
  // A turn begins; in one to train `exchange` has its rows.
  void beginTurn(RowExchange& exchange, bool trains);
  StatusOr<std::vector<float>> lookUp(const session::LookUp& look_up) override;
  void push(const session::PushRows& push) override;
  void lookAhead(session::LookAhead ahead) override { ahead_.put(std::move(ahead)); }
  // The turn's gradients leave, those of a turn without any too: all servers wait for them.
  void pushAll();

 private:
  RowSums noSums() const;
  StatusOr<RowValues> read(std::size_t table, std::vector<std::uint64_t> ids);

  const std::vector<session::SessionTable> tables_;
  LookedAhead ahead_;
  RowExchange* exchange_ = nullptr;
  TurnRows came_;
  // By table: where an id is in came_.
  std::vector<std::unordered_map<std::uint64_t, std::size_t>> places_;
  RowSums sums_;
};

// The job's tables, as its programs hear of them.
std::vector<session::SessionTable> sessionTables(const v1::Training& training);

}  // namespace trainyard::runtime
