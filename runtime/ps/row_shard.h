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
  // `guarded`: what its own take goes to replicas, but for those of `unguarded`.
  void replicate(const std::vector<std::uint32_t>& numbers, bool guarded,
                 const std::set<std::uint32_t>& unguarded = {});
  // From now on it copies these parts while the epoch runs, none of them its own or a replica, and
  // nobody but `followers` (by number) copies what is here once release() was called.
  void copy(const std::vector<std::uint32_t>& numbers,
            std::map<std::uint32_t, std::set<int>> followers = {});
  // Of a part that is here, own or not; -1: there is none, or a copy that is not complete.
  std::int64_t point(std::uint32_t number) const;
  // NOT_FOUND: it is not here, or has nothing yet.
  StatusOr<rows::GivenPart> give(std::uint32_t number, std::int64_t known) const;
  // The same to who copies it while it takes updates (RowPart::giveFollower). `begun` is called
  // once what follows, which takes long, needs nothing that an epoch is prepared with.
  StatusOr<rows::GivenPart> giveFollower(
      std::uint32_t number, int follower, std::uint64_t mark,
      const std::function<void()>& begun = [] {});
  // What a copy that was made of this process's part is to be asked on with; 0: there is none.
  std::uint64_t markOf(std::uint32_t number, const v1::Incarnation& of) const;
  // One of its own or a replica, as another server gave it, in place of what may be here: first
  // what takes long, which changes nothing here, then the rest. INVALID_ARGUMENT: it does not fit.
  struct Unpacked {
    std::shared_ptr<rows::RowPart> whole;  // null: what follows goes into the rows that are here
    rows::GivenPart behind;
  };
  StatusOr<Unpacked> unpack(std::uint32_t number, rows::GivenPart given) const;
  // Of a part that is copied while the epoch runs: of whom.
  Status takeOver(std::uint32_t number, Unpacked part, const v1::Incarnation* copied_of = nullptr);
  // What is not its own is dropped. False: there was nothing.
  bool dropReplicas();
  // What is neither its own nor a replica nor copied is.
  void release();
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
  // Its own part as it is; by Look or withPart(), which see to it that nobody else has it. What is
  // read later waits for who has the part then, a partition at a time, whatever becomes of it here.
  // `since`: only what has changed in that step or later, and what has gone (mode Sync).
  std::vector<LateRows> snapshot(std::size_t at, std::optional<std::int64_t> since) const;
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
    std::shared_ptr<rows::RowPart> rows;  // as makePart() makes them; snapshots have it too
    std::map<CallId, TimePoint> waiting;
    // As others may know it, to be read without the mutex; -1: nothing has been loaded, or it is a
    // copy.
    std::atomic<std::int64_t> version = -1;
    // What is here is behind the part of another process, as far as it was copied.
    struct Copy {
      v1::Incarnation of;
      std::uint64_t mark = 0;
    };
    std::optional<Copy> copy;
  };
  std::unique_ptr<rows::RowPart> makePart(rows::PartitionRange range) const;
  void hold(std::size_t part);
  bool dropUnwanted();
  std::shared_ptr<Part> heldOf(std::uint32_t number) const;
  Status notHere(std::uint32_t number) const;
  Status become(Part& part, Unpacked unpacked) const;
  bool isOwn(std::size_t part) const;
  bool isWanted(std::size_t part) const { return isOwn(part) || replicas_.contains(part); }
  bool isKept(std::size_t part) const { return isWanted(part) || copies_.contains(part); }
  bool isGuarded(std::size_t part) const {
    return guarded_ && isOwn(part) && !unguarded_.contains(part);
  }
  // Of own_; nothing: it is not its own.
  std::optional<std::size_t> find(std::uint32_t number) const;
  Part& own(std::size_t at) const { return *held_[own_[at]]; }
  void collectUpdate(Part& part);
  void answer(Part& part, std::uint32_t number, std::vector<rows::RowAnswer> answers,
              std::vector<ChunkAnswer>& out);
  ChunkAnswer refuse(CallId call, std::uint32_t number, std::string why) const;
  struct LatePart;
  static void readLate(const LatePart& late, std::size_t store, rows::PartitionRange range,
                       TableRows& rows);

  const std::vector<rows::RowTableConfig> tables_;
  const RowGrid grid_;
  const int ps_;
  const ElementType wire_;
  const std::optional<int> aggregate_;
  const bool deltas_;
  std::vector<std::size_t> dims_;
  Look look_ = [](std::size_t, const rows::RowPart&) {};
  // By part; null: it is not here. Its own, replicas, copies, and what is others' until release().
  std::vector<std::shared_ptr<Part>> held_;
  std::vector<std::size_t> own_;  // ascending
  std::set<std::size_t> replicas_;
  std::set<std::size_t> copies_;
  std::map<std::uint32_t, std::set<int>> followers_;  // by number
  bool guarded_ = false;
  std::set<std::size_t> unguarded_;
  std::atomic<std::uint64_t> logs_ = 0;  // of parts that others copy, so far
  std::int64_t epoch_ = 0;               // that was opened last

  std::mutex updates_mutex_;  // after a part's mutex
  std::vector<RowReplicaUpdate> updates_;
};

}  // namespace trainyard::runtime::ps
