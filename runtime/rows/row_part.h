// A range of partitions of all of the job's tables, on their server: what takes a step together and
// is at one version. The unit of requests, of versions and of moves. No sockets, no clock, no
// threads.
//
// Synchronous mode. Step s turns version s into s + 1 when all ranks that have samples in it have
// brought their gradients, also those that have none for this part: an empty request is what says
// so. A request brings gradients of step s and asks for rows of version s + 1, and is answered
// then. Whoever has been answered by all parts for step s brings gradients of s + 1; so a part that
// sees the first of them knows that all parts have reached s + 1, and forgets what it kept of
// version s. Until then both can be read, and at any moment all parts are at v or v + 1 for one v,
// which is readable everywhere: what an epoch starts from (as with chunks, see
// runtime/ps/shard.h). A part that had taken step v already when an epoch begins at v takes no
// gradients of it again.
//
// Sums go in the order of ranks, so the bits depend neither on who came first nor on how partitions
// are cut into parts and parts dealt to servers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/core/status.h"
#include "runtime/data/step_plan.h"
#include "runtime/optimizer/optimizer.h"
#include "runtime/rows/row_sum.h"
#include "runtime/rows/row_table.h"
#include "runtime/rows/row_undo.h"

namespace trainyard::runtime::rows {

using CallId = std::uint64_t;

struct RowRequest {
  std::int64_t epoch = 0;
  int rank = 0;
  // Gradients of step `step`, by table; none: this rank has no samples in it, or only reads.
  std::int64_t step = 0;
  std::optional<std::vector<RowGradients>> gradients;
  // Rows to be answered with, by table, ascending by RowOrder, each once.
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

// A table of the job. The optimizer must outlive whoever has it.
struct RowTableConfig {
  RowTableOptions options;
  const Optimizer* optimizer = nullptr;
  LearningRate learning_rate;
};

class RowPart {
 public:
  RowPart(const std::vector<RowTableConfig>& tables, PartitionRange range);

  // To be filled by load() while no epoch is open; then it is at `version`.
  std::size_t tables() const { return tables_.size(); }
  RowTable& table(std::size_t t) { return tables_[t].table; }
  const RowTable& table(std::size_t t) const { return tables_[t].table; }
  void setVersion(std::int64_t version);

  // From now on requests of `epoch` count. FAILED_PRECONDITION: it is neither at plan.first_step
  // nor, with that still readable, at the version after it.
  Status open(std::int64_t epoch, const StepPlan& plan);
  // No request counts any more; those that wait are answered, and what they brought is dropped.
  void seal(std::vector<RowAnswer>& out);
  // Answers appear in `out`: none now (it waits), or several. A rank that asks again is answered
  // under its newest call.
  void onRequest(RowRequest request, CallId call, std::vector<RowAnswer>& out);

  // Its caller is gone.
  void cancel(CallId call);
  // What waits is answered without rows after all, to be asked again. Nothing: it does not wait.
  std::optional<RowAnswer> giveUp(CallId call);

  std::int64_t version() const { return version_; }
  // Whether rows of the version before can be read too.
  bool hasFormer() const { return has_former_; }
  // What must end the job: a gradient that is not finite, a table that is full. The step that has
  // met it is not taken.
  const Status& failure() const { return failure_; }
  PartitionRange range() const { return range_; }

 private:
  struct Table {
    RowTable table;
    RowOrder order;
    LearningRate learning_rate;
    RowUndo undo;
  };
  struct Parked {
    CallId call = 0;
    RowRequest request;
  };
  Status check(const RowRequest& request) const;
  Status checkWish(const RowRequest& request) const;
  Status checkBrought(const RowRequest& request) const;
  void bring(RowRequest& request);
  void park(RowRequest request, CallId call, std::vector<RowAnswer>& out);
  std::string missingRanks() const;
  void takeStep(std::vector<RowAnswer>& out);
  Status update(std::size_t t);
  RowAnswer without(RowAnswer::Code code, const RowRequest& request, CallId call) const;
  RowAnswer answer(const RowRequest& request, CallId call) const;

  const PartitionRange range_;
  std::vector<Table> tables_;
  std::int64_t epoch_ = -1;  // -1: none is open
  StepPlan plan_;
  std::int64_t version_ = 0;
  bool has_former_ = false;
  // Of the step that turns version_ into the next: by rank of those with samples, then by table.
  std::vector<std::optional<std::vector<RowGradients>>> brought_;
  std::vector<Parked> parked_;
  Status failure_;
};

}  // namespace trainyard::runtime::rows
