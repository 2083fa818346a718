// One parameter server's parts of the job's tables, its own and replicas of others': requests for
// rows to their parts, which take their steps side by side. What Shard is to chunks; a part of it,
// whose epochs it follows.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "runtime/checkpoint/snapshot.h"
#include "runtime/data/number_set.h"
#include "runtime/data/step_plan.h"
#include "runtime/ps/chunk_state.h"
#include "runtime/ps/row_body.h"
#include "runtime/ps/row_grid.h"
#include "runtime/rows/row_part.h"
#include "runtime/tensor/element_type.h"
#include "trainyard/v1/agent.pb.h"
#include "trainyard/v1/coordinator.pb.h"
#include "trainyard/v1/parameter_server.pb.h"

namespace trainyard::runtime::ps {

// What a part has taken, for its replica.
struct RowReplicaUpdate {
  v1::ChunkRequestHeader header;  // all but the job, and who sends it to whom
  RowBytes body;
};

// Thread-safe, but for what prepares an epoch (seal() to open(), release()), while which nobody
// else calls: the shard's lock sees to that.
class RowShard {
 public:
  // What the tables' optimizers are must outlive it. `wire`: of gradients on their way here.
  // `aggregate`: in modes Async and BoundedDelay, the pushes that make an update; nothing: Sync.
  // `deltas`: there will be delta checkpoints (Sync).
  RowShard(std::vector<rows::RowTableConfig> tables, RowGrid grid, int ps, ElementType wire,
           std::optional<int> aggregate = std::nullopt, bool deltas = false);

  // Called with a part that is at rest, before and after each of its steps, while nobody else may
  // have it: what the version is wanted for.
  using Look = std::function<void(std::size_t at, const rows::RowPart& part)>;
  void setLook(Look look) { look_ = std::move(look); }

  bool has(std::uint32_t number) const;
  // One request, of an epoch that is open. Answers appear in `out`; CHUNK_OK has the rows of all
  // tables, one after the other.
  void onRequest(const v1::ChunkRequestHeader& header, std::span<const std::byte> body, CallId call,
                 TimePoint now, std::vector<ChunkAnswer>& out);
  void onCancelled(CallId call);
  // Answers calls that have waited since before `since`.
  void giveUp(TimePoint since, std::vector<ChunkAnswer>& out);

  void seal(std::vector<ChunkAnswer>& out);
  // From now on these parts are its own (`ps_of_part`, by part). A replica that is here becomes one
  // as it is; what is another's now stays until release().
  void assign(const std::vector<int>& ps_of_part);
  // From now on it keeps replicas of the parts with these numbers, none of them its own.
  // `guarded`: what its own take goes to replicas.
  void replicate(const std::vector<std::uint32_t>& numbers, bool guarded);
  // Of a part that is here, own or not; -1: there is none.
  std::int64_t point(std::uint32_t number) const;
  // NOT_FOUND: it is not here, or has nothing yet.
  StatusOr<rows::GivenPart> give(std::uint32_t number, std::int64_t known) const;
  // One of its own or a replica, as another server gave it, in place of what may be here: first
  // what takes long, which changes nothing here, then the rest. INVALID_ARGUMENT: it does not fit.
  struct Unpacked {
    std::unique_ptr<rows::RowPart> whole;  // null: what follows goes into the rows that are here
    rows::GivenPart behind;
  };
  StatusOr<Unpacked> unpack(std::uint32_t number, rows::GivenPart given) const;
  Status takeOver(std::uint32_t number, Unpacked part);
  // What is not its own is dropped. False: there was nothing.
  bool dropReplicas();
  // What is neither its own nor a replica is.
  void release() { dropUnwanted(); }
  // FAILED_PRECONDITION: a part or a replica is no version that the epoch can begin with.
  Status open(std::int64_t epoch, const StepPlan& plan);
  // All that is wanted here: tables without rows, at `version`; to be filled by load().
  void clear(std::int64_t version);
  // Those of the rows that are in one of them.
  void load(const TableRows& rows);

  // What own parts have taken, to be sent to replicas, each once. After whatever may have given
  // answers.
  std::vector<RowReplicaUpdate> takeUpdates();
  // The replica has it. Ignored where that is not (or no longer) waited for.
  void onReplicated(const v1::ChunkRequestHeader& update, std::vector<ChunkAnswer>& out);
  // The other side: such an update of a part whose replica is here.
  void takeReplica(const v1::ChunkRequestHeader& header, std::span<const std::byte> body,
                   CallId call, std::vector<ChunkAnswer>& out);
  void fillReplicas(v1::ShardState& state) const;

  // Asynchronous modes, while no push is under way: what is here is called by this version.
  void settle(std::int64_t version);
  // The same modes: adds those of the pushes that are in a part here, or in a replica.
  void addPushed(NumberSet& tickets, NumberSet& samples) const;

  std::size_t partsOfJob() const { return held_.size(); }
  // Of its own.
  std::size_t parts() const { return own_.size(); }
  // Of all that is wanted here; neighbours are one.
  std::vector<rows::PartitionRange> ranges() const;
  // `use` is given one of its own parts, which nobody else has meanwhile.
  void withPart(std::size_t at, const std::function<void(const rows::RowPart&)>& use) const;
  // Of its own, as others may know them, without waiting for any; none: -1.
  std::int64_t lowestVersion() const;
  std::int64_t highestVersion() const;
  // No delta begins before this version any more.
  void forgetGoneBefore(std::int64_t version);
  // What has kept a step from being taken; of the step whose gradients these were.
  std::optional<v1::Abort> abort() const;
  void fillTables(v1::ShardTable& table) const;
  // What is held and what was asked for, by table.
  void fillReport(v1::RuntimeReport& report) const;

 private:
  struct Part {
    std::uint32_t number = 0;
    std::mutex mutex;
    std::unique_ptr<rows::RowPart> rows;  // as makePart() makes them
    std::map<CallId, TimePoint> waiting;
    // As others may know it, to be read without the mutex; -1: nothing has been loaded.
    std::atomic<std::int64_t> version = -1;
  };
  std::unique_ptr<rows::RowPart> makePart(rows::PartitionRange range) const;
  void hold(std::size_t part);
  bool dropUnwanted();
  Part* heldOf(std::uint32_t number) const;
  bool isOwn(std::size_t part) const;
  bool isWanted(std::size_t part) const { return isOwn(part) || replicas_.contains(part); }
  // Of own_; nothing: it is not its own.
  std::optional<std::size_t> find(std::uint32_t number) const;
  Part& own(std::size_t at) const { return *held_[own_[at]]; }
  void collectUpdate(Part& part);
  void answer(Part& part, std::uint32_t number, std::vector<rows::RowAnswer> answers,
              std::vector<ChunkAnswer>& out);
  ChunkAnswer refuse(CallId call, std::uint32_t number, std::string why) const;

  const std::vector<rows::RowTableConfig> tables_;
  const RowGrid grid_;
  const int ps_;
  const ElementType wire_;
  const std::optional<int> aggregate_;
  const bool deltas_;
  std::vector<std::size_t> dims_;
  Look look_ = [](std::size_t, const rows::RowPart&) {};
  // By part; null: it is not here. Its own, replicas, and what is others' until release().
  std::vector<std::unique_ptr<Part>> held_;
  std::vector<std::size_t> own_;  // ascending
  std::set<std::size_t> replicas_;
  bool guarded_ = false;
  std::int64_t epoch_ = 0;  // that was opened last

  std::mutex updates_mutex_;  // after a part's mutex
  std::vector<RowReplicaUpdate> updates_;
};

}  // namespace trainyard::runtime::ps
