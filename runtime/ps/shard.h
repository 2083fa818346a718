// One parameter server's part of the model: versions, sums and optimizer slots of its chunks. No
// sockets, no clock, no files.
//
// Synchronous mode. A chunk is at version v (after v updates). A push of step v adds to the chunk's
// sum (or is kept until all are there, and what is kept is summed, divided, checked and applied in
// one pass); when every rank of the epoch has pushed, the optimizer turns the mean into version v +
// 1 and all callers are answered with it. Two buffers per chunk: version v - 1 stays readable until
// the first gradient of step v arrives at the earliest, whose sum then takes its memory. A worker
// that pushes step v has received all chunks of version v, so at any moment all chunks of all
// servers are at v or v + 1, and the smaller one is readable everywhere: that is what a new epoch
// starts from.
//
// With clipping, a complete chunk keeps its mean in the sum's memory and its callers wait, until
// the norm over all chunks of all servers is known; then all of the server's chunks take the step,
// or none when the epoch ends before. So the above holds as it stands, with the same two buffers.
//
// With backup workers a step has fewer gradients than ranks; the requests that bring them carry
// their places among them. Who brings none has no place and is told the next version.
//
// Which chunks a server has may change between two epochs (shard_moves.cc). While nobody computes
// the new holder takes all of a chunk from the former one, who keeps it until the epoch has begun
// everywhere: an epoch that comes to nothing leaves the model where it was.
//
// With replicas (shard_replicas.cc) another server holds a second copy of each chunk. It gets the
// mean gradient of every step, takes the step with the same optimizer and says so; only then is the
// chunk's next version told to anybody or copied for a checkpoint. So whatever a worker has seen is
// on two servers, and all copies of all chunks are at v or v + 1: when a server dies, the replicas
// stand in for its chunks. A replica that has missed the newest step when an epoch ends gets it
// before the next one begins.
//
// The last step may have fewer samples than ranks. Ranks without samples are not waited for; they
// send requests without a payload to be told the next version. Such a rank may still lack the
// version before, which stays readable because no further step begins.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <string>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "runtime/checkpoint/snapshot.h"
#include "runtime/data/step_plan.h"
#include "runtime/optimizer/optimizer.h"
#include "runtime/placement/placement.h"
#include "runtime/ps/chunk_state.h"
#include "runtime/ps/given_chunk.h"
#include "runtime/ps/row_shard.h"
#include "runtime/ps/step_norm.h"
#include "runtime/tensor/element_type.h"
#include "trainyard/v1/coordinator.pb.h"
#include "trainyard/v1/parameter_server.pb.h"

namespace trainyard::runtime::ps {

struct ShardConfig {
  std::string job_uid;
  v1::Incarnation self;
  int ps = 0;
  bool deterministic = false;  // sum in rank order instead of order of arrival
  bool asynchronous = false;   // modes Async and BoundedDelay: see shard_async.cc
  int aggregate = 1;           // Async: pushes that make one update
  double clip_norm = 0;        // of the job's mean gradient; 0: none
  // What gradients were on their way here.
  ElementType wire = ElementType::kFloat32;
  Duration stall_limit =
      std::chrono::seconds(60);  // a parked call is answered NOT_READY after this
};

using runtime::Snapshot;  // the whole shard at one version

// A step that a chunk, or a part of the tables, has taken, for its replica.
struct ReplicaUpdate {
  v1::ChunkRequestHeader header;  // all but who sends it to whom
  std::shared_ptr<const Weights> mean;
  RowBytes rows;  // of a part; then there is no mean
};

// Thread-safe. Requests on different chunks run in parallel; seal() and prepare*() exclude all
// others.
class Shard {
 public:
  // Elements updated at a time: mean, check and update of a block stay in the L1 cache.
  static constexpr std::int64_t kUpdateBlock = 2048;

  // `placement` and `optimizer` must outlive the shard. `rows`: its parts of the job's tables,
  // which take steps with the chunks; null: the job has none. Wherever numbers of chunks are, those
  // of parts may be, behind them (RowGrid), but where it is said otherwise.
  Shard(ShardConfig config, const Placement& placement, const Optimizer& optimizer,
        LearningRate learning_rate, std::unique_ptr<RowShard> rows = nullptr);
  ~Shard();

  // From now on next versions of its chunks, and what goes to replicas, are in this memory. At any
  // time.
  void setMemory(WeightsMemory memory);

  // One ChunkRequest. Answers appear in `out`: possibly none now (parked), possibly many.
  void onRequest(const v1::ChunkRequestHeader& header, std::unique_ptr<GradientPayload> payload,
                 CallId call, TimePoint now, std::vector<ChunkAnswer>& out);
  // The same of a part of the tables (see RowGrid).
  void onRowRequest(const v1::ChunkRequestHeader& header, std::span<const std::byte> body,
                    CallId call, TimePoint now, std::vector<ChunkAnswer>& out);
  // With clipping: the norm of a step's mean gradient over all servers, as found in `epoch`.
  // Ignored where it is not (or no longer) wanted.
  void setNorm(std::int64_t epoch, std::int64_t step, double norm);
  // With clipping: updates one chunk that has waited for the norm; false when there is none. Any
  // number of threads may ask at once, after onRequest() and setNorm().
  bool updateNext(std::vector<ChunkAnswer>& out);
  // True once when the coordinator should see state() at once: others wait for what it says.
  bool takeUrgent() { return norm_.clips() && norm_.takeUrgent(); }
  // True once when a snapshot has become complete or abort() is set.
  bool takeProgress() { return progress_.exchange(false); }
  // The caller of a parked call is gone.
  void onCancelled(CallId call);
  // Answers calls that were parked longer than the stall limit.
  void onTick(TimePoint now, std::vector<ChunkAnswer>& out);

  // From now on nothing of an epoch before `epoch` is accepted; parked calls fail, incomplete sums
  // and snapshots are dropped.
  void seal(std::int64_t epoch, std::vector<ChunkAnswer>& out);

  // From now on the chunks that `ps_of_chunk` (by chunk) gives to this server are its own. Those
  // that it does not hold are to be loaded or taken over; those that it holds and that are others'
  // now stay aside until release(). Precondition: sealed.
  void assign(const std::vector<int>& ps_of_chunk);
  // All of a chunk (not a part), for who is to hold it (or a replica) in `epoch`; of one at version
  // `known` only that. FAILED_PRECONDITION when this server is not between the seal of that epoch
  // and its release; NOT_FOUND: it does not hold the chunk.
  StatusOr<GivenChunk> give(std::int64_t epoch, std::uint32_t chunk, std::int64_t known = -1) const;
  // The same as it was asked for. FAILED_PRECONDITION also where another job's server is meant, or
  // another incarnation.
  StatusOr<GivenChunk> give(const v1::FetchChunkRequest& request) const;
  // A chunk of its own, or a replica, as another server gave it, in place of what may be here.
  // INVALID_ARGUMENT: its arrays do not fit. Precondition: assigned and sealed.
  Status takeOver(std::uint32_t chunk, GivenChunk given);
  // Both of a part of the tables.
  StatusOr<rows::GivenPart> givePart(const v1::FetchChunkRequest& request) const;
  StatusOr<rows::GivenPart> givePart(std::int64_t epoch, std::uint32_t part,
                                     std::int64_t known = -1) const;
  // The same for who copies it, as long as the epoch lasts.
  StatusOr<rows::GivenPart> giveFollower(std::int64_t epoch, std::uint32_t part, int follower,
                                         std::uint64_t mark) const;
  Status takeOverPart(std::uint32_t part, rows::GivenPart given);
  // Who copies parts while the epoch runs: this server these (by number), none of them its own or a
  // replica; of what it has, `followers`. Precondition: sealed, assigned and replicate() was
  // called.
  void copyParts(const std::vector<std::uint32_t>& parts,
                 std::map<std::uint32_t, std::set<int>> followers);
  // What was copied of a part of process `of` is taken over, at any time. CANCELLED: `epoch` is
  // over.
  Status takeOverCopy(std::int64_t epoch, std::uint32_t part, rows::GivenPart given,
                      const v1::Incarnation& of);
  // To ask that process on with (FetchChunkRequest.follows); 0: there is no copy of it.
  std::uint64_t copyMark(std::uint32_t part, const v1::Incarnation& of) const;
  bool isPart(std::uint32_t number) const { return rows_ != nullptr && rows_->has(number); }
  // The epoch has begun everywhere: what was given away is dropped.
  void release();

  // From now on this server keeps replicas of these chunks, none of them its own; those that are
  // not here are to be loaded or taken over, and those that are not wanted any more stay until
  // release(). `guarded`: its own chunks' steps go to replicas. Precondition: sealed and assigned.
  // `unguarded`: but not those of these parts.
  void replicate(const std::vector<std::uint32_t>& chunks, bool guarded,
                 const std::set<std::uint32_t>& unguarded = {});
  // Chunks that are to be its own and are nowhere else: its replicas of them become theirs. After
  // all others have been taken over.
  void adoptReplicas();
  // They are of no use any more. Precondition: sealed, or it takes no part.
  void dropReplicas();
  // Of a replica, or of a part whatever it is here; -1: there is none. To be compared with the
  // chunk's own, see give(). (Asynchronous modes: the count of pushes in it.)
  std::int64_t replicaVersion(std::uint32_t chunk) const;
  // Steps that are to be sent to replicas, each once. After whatever may have given answers.
  std::vector<ReplicaUpdate> takeUpdates();
  // The replica has taken this step. Ignored where it is not (or no longer) waited for.
  void onReplicated(const v1::ChunkRequestHeader& update, std::vector<ChunkAnswer>& out);

  // Fills a chunk of its own or a replica while preparing; weights as long as the chunk, slots in
  // the optimizer's order. Precondition: sealed.
  void load(std::uint32_t chunk, std::int64_t version, std::vector<float> weights,
            std::vector<std::vector<float>> slots);
  // Its parts of the tables, empty and at `version`, to be filled with rows of a checkpoint. As
  // load().
  void clearRows(std::int64_t version);
  void loadRows(const TableRows& rows);
  // Null: the job has no tables. For who prepares epochs; others ask the shard.
  const RowShard* rows() const { return rows_.get(); }
  // What its tables hold and were asked for.
  void fillReport(v1::RuntimeReport& report) const;
  // Opens the shard for `epoch` and its steps. FAILED_PRECONDITION when chunks are missing or not
  // at first_step or first_step + 1. A snapshot of the last version is taken without being asked;
  // not when `restored`, i.e. first_step is a committed checkpoint, and the last version; for a
  // fresh start also one of the first.
  Status open(std::int64_t epoch, const StepPlan& plan, bool fresh, bool restored);

  // A snapshot of `version` is to be taken: of each chunk when it is at exactly that. Copies
  // nothing. False when a chunk is beyond it.
  // With a `base`: of tables only what has changed since (mode Sync).
  bool arm(std::int64_t version, const DeltaBase& base = {});
  // No delta begins before this version any more.
  void forgetGoneBefore(std::int64_t version);
  // Copies one chunk that was at its snapshot's version already when that was armed (the others are
  // copied as they reach it, and before they leave it); false: there is none, or it would be in the
  // way.
  bool captureNext();
  // A complete snapshot, once.
  std::optional<Snapshot> takeSnapshot();

  v1::ShardState state() const;
  std::int64_t epoch() const;
  // Set when a sum was not finite: step and variable.
  std::optional<v1::Abort> abort() const;
  void fillTable(v1::ShardTable& table) const;
  std::uint64_t parameterBytes() const { return parameter_bytes_; }
  std::size_t chunks() const;  // of its own
  int ps() const { return config_.ps; }

 private:
  // What differs between the update modes: shard_updates.h.
  class Updates;
  class StepUpdates;
  class PushUpdates;
  // All of epoch_mutex_. Others' requests come and go; captureNext(), which would always be there,
  // leaves it alone as long as somebody waits.
  class AllExcluded;
  // At most kUpdateBlock elements from `at` on.
  static std::span<float> blockOf(std::span<float> values, std::int64_t at);
  ChunkState* find(std::uint32_t chunk) const;
  ChunkState* findReplica(std::uint32_t chunk) const;
  ChunkAnswer answerWith(CallId call, const ChunkState& chunk, std::int64_t version,
                         std::shared_ptr<const Weights> weights) const;
  void setOwn(std::map<std::uint32_t, std::unique_ptr<ChunkState>> held,
              const std::vector<int>& ps_of_chunk);
  // For who is told that the chunk's step takes long.
  std::string waitsFor(const ChunkState& chunk) const;
  ChunkAnswer refuse(CallId call, std::uint32_t chunk, v1::ChunkCode code,
                     std::string message) const;
  void answerParked(ChunkState& chunk, std::vector<ChunkAnswer>& out);
  bool capture(ChunkState& chunk);
  bool beyond(ChunkState& chunk, std::int64_t version);
  bool averageBlock(ChunkState& chunk, std::int64_t at, std::vector<ChunkAnswer>& out);
  void updateBlock(ChunkState& chunk, const UpdateContext& context, std::int64_t at);
  void prepareMean(ChunkState& chunk);
  void keepMean(ChunkState& chunk, std::int64_t at);
  void sendToReplica(ChunkState& chunk, v1::ChunkRequestHeader header);
  void applyReplica(const v1::ChunkRequestHeader& header, std::unique_ptr<GradientPayload> payload,
                    CallId call, std::vector<ChunkAnswer>& out);
  void fillReplicas(v1::ShardState& state) const;
  static void turnVersion(ChunkState& chunk);
  std::optional<ChunkAnswer> refusal(const v1::ChunkRequestHeader& header, CallId call) const;
  Status checkMeant(const v1::FetchChunkRequest& request) const;
  Status checkGives(std::int64_t epoch) const;
  // What a snapshot has of all its holder's: chunks, then parts of the tables.
  std::size_t holdings() const { return chunks_.size() + (rows_ == nullptr ? 0 : rows_->parts()); }
  bool captureRows(std::size_t at, const rows::RowPart& part);
  bool captureAt(std::size_t holding);
  bool rowsBeyond(std::int64_t version);
  bool forgoSnapshot(std::size_t holding, std::int64_t version);
  bool wantsCopy(std::size_t holding, std::int64_t version) const;
  DeltaBase baseOf(std::int64_t version) const;
  bool addToSnapshot(std::size_t holding, std::int64_t version,
                     const std::function<void(Snapshot&)>& add);

  const ShardConfig config_;
  const Placement& placement_;
  const Optimizer& optimizer_;
  const LearningRate learning_rate_;
  const std::uint32_t last_chunk_;  // of the job: carries the loss
  std::atomic<std::uint64_t> parameter_bytes_{0};

  mutable std::shared_mutex epoch_mutex_;  // before any chunk's mutex
  std::atomic<int> excluders_ = 0;         // who wait for all of epoch_mutex_, or have it
  std::int64_t epoch_ = 0;
  bool open_ = false;
  bool empty_ = true;
  WeightsMemory memory_;                     // null: the process's own
  StepPlan plan_;                            // of the epoch that was opened last
  std::vector<std::int32_t> slot_of_chunk_;  // chunk id -> index into chunks_, -1: not ours
  std::vector<std::unique_ptr<ChunkState>> chunks_;
  // Held, but others' by the newest map; of the epoch that is being prepared or later ones.
  std::map<std::uint32_t, std::unique_ptr<ChunkState>> aside_;
  bool released_ = false;  // since the newest seal
  // Of other servers' chunks; wanted are those of the epoch that was prepared last.
  std::map<std::uint32_t, std::unique_ptr<ChunkState>> replicas_;
  std::set<std::uint32_t> wanted_replicas_;
  bool guarded_ = false;
  bool holds_global_step_ = false;
  StepNorm norm_;
  const std::unique_ptr<Updates> mode_;  // for good; also of what chunks are

  std::mutex updates_mutex_;  // after a chunk's mutex
  std::vector<ReplicaUpdate> updates_;

  mutable std::mutex snapshot_mutex_;  // after a chunk's mutex
  struct Pending {
    Snapshot snapshot;
    std::size_t missing = 0;
    std::vector<bool> have;
    std::size_t looked = 0;  // captureNext() has been to the chunks before this one
  };
  std::vector<Pending> pending_;
  std::int64_t missed_ = -1;
  std::int64_t captured_ =
      -1;  // newest version of which there was a complete snapshot, in the epoch
  std::optional<v1::Abort> abort_;
  std::atomic<bool> progress_ = false;
  const std::unique_ptr<RowShard> rows_;  // its mutexes as chunks'
};

class Shard::AllExcluded {
 public:
  explicit AllExcluded(Shard& shard) : count_(shard.excluders_) {
    ++count_;
    lock_ = std::unique_lock(shard.epoch_mutex_);
  }
  ~AllExcluded() { --count_; }
  AllExcluded(const AllExcluded&) = delete;
  AllExcluded& operator=(const AllExcluded&) = delete;
  void unlock() { lock_.unlock(); }

 private:
  std::atomic<int>& count_;
  std::unique_lock<std::shared_mutex> lock_;
};

}  // namespace trainyard::runtime::ps
