// A range of partitions of all of the job's tables, on their server: what is updated together and
// is at one version. The unit of requests, of versions, of replicas and of moves. What makes a
// version is the update mode's: row_steps.h (Sync) and row_pushes.h (Async, BoundedDelay). No
// sockets, no clock, no threads.
//
// With a replica, a part of the same partitions that another server has, everything that the part
// takes goes there too, and nobody is told of it before the replica has it: as with chunks, see
// runtime/ps/shard.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/core/status.h"
#include "runtime/checkpoint/snapshot.h"
#include "runtime/data/number_set.h"
#include "runtime/data/step_plan.h"
#include "runtime/optimizer/optimizer.h"
#include "runtime/rows/part_log.h"
#include "runtime/rows/part_snapshot.h"
#include "runtime/rows/row_admission.h"
#include "runtime/rows/row_meter.h"
#include "runtime/rows/row_sum.h"
#include "runtime/rows/row_table.h"
#include "runtime/rows/row_undo.h"

namespace trainyard::runtime::rows {

using CallId = std::uint64_t;

inline constexpr std::int64_t kNewestRows = -1;

struct RowRequest {
  std::int64_t epoch = 0;
  int rank = 0;
  // Gradients of step `step`, by table; none: this rank has no samples in it, or only reads.
  std::int64_t step = 0;
  std::optional<std::vector<RowGradients>> gradients;
  // With backup workers: which of the step's gradients they are.
  std::optional<int> place;
  // Whose gradients they are, and of what samples.
  struct Push {
    std::uint32_t worker = 0;
    // A process of that worker, and the push's number among its own. Later ones compare greater.
    std::int64_t created = 0;
    std::int64_t start = 0;
    std::int64_t number = 0;
    std::int64_t ticket = 0;  // among all workers' pushes
    std::int64_t first = 0;   // position of the first sample
    std::int64_t samples = 0;
  };
  Push push;
  // Rows to be answered with, by table, ascending by RowOrder, each once; of kNewestRows as they
  // are, which nobody asks for who brings gradients.
  std::int64_t version = 0;
  std::vector<std::vector<std::uint64_t>> ids;
};

struct RowAnswer {
  enum class Code {
    kRows,
    kEpochOver,   // it was of another epoch, or that has ended
    kAskedAgain,  // its rank has asked anew meanwhile
    kNotReady,    // it has waited too long; `message` says for whom
    kRefused,     // `message` says what was wrong with it
  };
  CallId call = 0;
  Code code = Code::kRows;
  std::int64_t epoch = 0;                // of the request
  std::int64_t version = 0;              // of the rows; otherwise the part's
  std::vector<std::vector<float>> rows;  // by table, as asked for
  std::string message;
};

// What a part has taken, for its replica. Sync: a step's mean gradient over all ranks; in the other
// modes a push as it came.
struct PartUpdate {
  std::int64_t point = 0;  // of the part before it
  std::int64_t step = 0;   // that the learning rate is of, and that rows are marked with
  RowRequest::Push push;   // Sync: its samples alone
  std::vector<RowGradients> gradients;  // by table
};

// All of a part, for who is to hold it or its replica: rows, and what has come after them.
struct GivenPart {
  std::int64_t point = -1;  // of the rows; who asked has them already where `stores` is empty
  std::int64_t version = -1;
  std::vector<TableRows> stores;             // by number, see RowPart::store()
  std::shared_ptr<const PartUpdate> update;  // to be taken behind them; null: none
  // Modes without common steps: what RowPushes knows beside rows.
  struct Applied {
    std::uint32_t worker = 0;
    std::int64_t created = 0;
    std::int64_t start = 0;
    std::int64_t number = 0;
  };
  std::vector<Applied> applied;  // the newest push of each worker
  NumberSet tickets;
  NumberSet samples;
  std::vector<std::vector<RowGradients>> brought;  // of the next update, in order
  std::int64_t brought_samples = 0;
  // For who copies the part while it takes updates (PartLog); 0: who asked does not. Where there
  // are no stores, `updates` are what came behind the mark he has asked with, and `point` and
  // `version` where they bring him.
  std::uint64_t mark = 0;
  PartLog::Updates updates;
};

// A table of the job. The optimizer must outlive whoever has it.
struct RowTableConfig {
  RowTableOptions options;
  const Optimizer* optimizer = nullptr;
  LearningRate learning_rate;
};

class RowPart {
 public:
  RowPart(const std::vector<RowTableConfig>& tables, PartitionRange range);
  virtual ~RowPart() = default;
  RowPart(const RowPart&) = delete;
  RowPart& operator=(const RowPart&) = delete;

  // To be filled by load() while no epoch is open; then it is at `version`.
  std::size_t tables() const { return tables_.size(); }
  RowTable& table(std::size_t t) { return tables_[t].table; }
  const RowTable& table(std::size_t t) const { return tables_[t].table; }
  // What a checkpoint has of it: the tables, then what is counted of ids that are not admitted yet,
  // of those tables where that is (RowAdmission), in their order.
  std::size_t stores() const;
  const RowTable& store(std::size_t number) const;
  RowTable& store(std::size_t number) {
    return const_cast<RowTable&>(std::as_const(*this).store(number));
  }
  // Ids of table `t` that have no row yet, and their memory.
  const RowTable* counted(std::size_t t) const;
  virtual void setVersion(std::int64_t version);
  // What is asked of each table, since the first of the parts that have handed this on.
  const RowMeter& meter(std::size_t t) const { return tables_[t].meter; }
  void takeMeters(RowPart& former);

  // From now on requests of `epoch` count. FAILED_PRECONDITION: what is here is no version that the
  // epoch can begin with.
  virtual Status open(std::int64_t epoch, const StepPlan& plan) = 0;
  // The same of a replica, which opens nothing.
  virtual Status canBegin(const StepPlan& /*plan*/) const { return absl::OkStatus(); }
  // No request counts any more; those that wait are answered.
  virtual void seal(std::vector<RowAnswer>& out) = 0;
  // Answers appear in `out`: none now (it waits), or several. A rank that asks again is answered
  // under its newest call.
  void onRequest(RowRequest request, CallId call, std::vector<RowAnswer>& out);

  // Its caller is gone.
  virtual void cancel(CallId /*call*/) {}
  // What waits is answered without rows after all, to be asked again. Nothing: it does not wait.
  virtual std::optional<RowAnswer> giveUp(CallId /*call*/) { return std::nullopt; }
  // Asynchronous modes, while no push is under way: what is here is called by this version.
  virtual void settle(std::int64_t /*version*/) {}

  // What a replica or another holder needs of it, which is at the point `known` (-1: at none).
  // Between epochs.
  GivenPart give(std::int64_t known) const;
  // The same, from who has held it: an empty part of the same partitions becomes it; one that was
  // at its point already takes the update alone. INVALID_ARGUMENT: it does not fit.
  virtual Status takeOver(GivenPart given) = 0;
  // As give() and takeOver(), of who copies the part while it takes updates, at any time: all of
  // it, or what came behind `mark`, with a new mark. `life` as of PartLog::begin. All of it is read
  // from the snapshot, where there is one, into `stores`, which have all else.
  struct ToFollower {
    GivenPart given;
    std::shared_ptr<PartSnapshot> rows;
  };
  ToFollower giveFollower(int follower, std::uint64_t mark, std::uint64_t life);
  Status follow(GivenPart given);
  // Nobody else copies it any more.
  void keepFollowers(const std::set<int>& followers) { log_.keepFollowers(followers); }
  // How far it is, to be compared with its replica: versions, or pushes.
  virtual std::int64_t point() const { return version_; }

  // From the next epoch on everything that it takes goes to a replica, or not.
  void setGuarded(bool guarded) { guarded_ = guarded; }
  // What is to be sent there, once; null: nothing.
  std::shared_ptr<const PartUpdate> takeUpdate() { return std::exchange(to_send_, nullptr); }
  // The replica has what was taken at this point: who has waited is answered.
  void onReplicated(std::int64_t point, std::vector<RowAnswer>& out);
  // Of somebody else: INVALID_ARGUMENT says what does not fit this part.
  Status checkGradients(const std::vector<RowGradients>& gradients) const;
  // As a replica. False: it lacks something before this.
  virtual bool takeAsReplica(std::shared_ptr<const PartUpdate> update) = 0;

  std::int64_t version() const { return version_; }
  // The newest that others may know of: in mode Sync it is in two places where it is to be; without
  // common steps a push counts at once, and only who has brought it is told later.
  virtual std::int64_t told() const { return version_; }
  // For deltas: from now on it knows which rows go (evicted, or admitted and no longer counted).
  void keepGone() { keeps_gone_ = true; }
  // The part as it is, to be read while steps go on, as long as the caller keeps it. With `since`
  // (mode Sync) only what has changed in that step or later.
  std::shared_ptr<PartSnapshot> snapshot(std::optional<std::int64_t> since = std::nullopt);
  // Mode Sync: rows of the store that have gone in step `since` or later and were there before it.
  std::vector<std::uint64_t> goneSince(std::size_t store, std::int64_t since) const;
  // No delta begins before this version any more.
  void forgetGoneBefore(std::int64_t version);
  // What must end the job: a gradient that is not finite, a table that is full. The update that has
  // met it is not made.
  const Status& failure() const { return failure_; }
  PartitionRange range() const { return range_; }

 protected:
  struct Table {
    RowTable table;
    RowOrder order;
    LearningRate learning_rate;
    RowUndo undo;  // of the newest update
    RowMeter meter;
    std::unique_ptr<RowAdmission> admission;  // null: every id gets a row

    void revert();
    void forgetFormer();
  };
  // give() but for the stores: whether they are needed, and whether they are of the version before
  // the newest update.
  struct Outline {
    GivenPart given;
    bool stores = false;
    bool former = false;
  };
  virtual Outline outline(std::int64_t known) const = 0;
  // Who is the mode's: a request of the epoch that is open, whose ids and gradients are in their
  // places and of this part. INVALID_ARGUMENT: it makes no sense now; nothing has happened.
  virtual Status take(RowRequest& request, CallId call, std::vector<RowAnswer>& out) = 0;
  // Gradients that will be in an update are counted.
  void countPushed(const std::vector<RowGradients>& gradients);
  // By table: gradients from `sources`, added up in their order, divided by `samples`.
  std::vector<RowGradients> meanOf(std::int64_t samples,
                                   std::span<const std::vector<RowGradients>* const> sources) const;
  // Mean gradients of all tables into the tables: the next version. False: failure() says why not,
  // and nothing is changed.
  bool update(std::int64_t step, const std::vector<RowGradients>& means);
  // The part has taken this; it is announced to the replica, where there is one, and to who copies
  // the part.
  void announce(std::shared_ptr<const PartUpdate> update);
  // Somebody wants to know what the part takes.
  bool announces() const { return guarded_ || log_.followed(); }
  // The newest that was announced is in the replica, or needs not be.
  virtual void confirmed(std::vector<RowAnswer>& out) = 0;
  // The stores as they are, or, with `former`, as they were before the newest update, which `rows`
  // is told of: all but their rows, which are to be read from it.
  std::vector<TableRows> beginStores(bool former, PartSnapshot& rows) const;
  // The reverse, into empty tables.
  Status loadStores(const std::vector<TableRows>& stores);
  RowAnswer without(RowAnswer::Code code, const RowRequest& request, CallId call) const;
  // Rows as they are now, called `version`.
  RowAnswer answer(const RowRequest& request, CallId call, std::int64_t version);

  std::vector<Table> tables_;
  const PartitionRange range_;
  std::int64_t epoch_ = -1;  // -1: none is open
  std::int64_t version_ = 0;
  Status failure_;
  bool guarded_ = false;
  bool unconfirmed_ = false;  // the newest is not with the replica yet

 private:
  Status check(const RowRequest& request) const;
  void evict(std::int64_t step);
  Status updateTable(std::size_t t, std::int64_t step, const RowGradients& mean);
  const RowUndo& undoOf(std::size_t store) const;
  void noteGone(std::int64_t step);
  void noteSnapshots();
  std::size_t bytes() const;

  std::shared_ptr<const PartUpdate> to_send_;
  PartLog log_;
  std::vector<std::weak_ptr<PartSnapshot>> snapshots_;
  // Of a store: rows that have gone, and when, in the order of steps.
  struct Gone {
    std::vector<std::uint64_t> ids;
    std::vector<std::uint32_t> steps;
  };
  bool keeps_gone_ = false;
  std::vector<Gone> gone_;  // by store
};

}  // namespace trainyard::runtime::rows
