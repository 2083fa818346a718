// A whole job in one thread on a seeded clock, network and process table: the shipped coordinator,
// shards and worker machines, with everything around them simulated. Every answer that a worker
// stores and every checkpoint is compared with a reference computed without any distribution.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/core/rng.h"
#include "runtime/coordinator/coordinator.h"
#include "runtime/ps/ps_machine.h"
#include "runtime/ps/row_body.h"
#include "runtime/ps/row_grid.h"
#include "runtime/ps/shard.h"
#include "runtime/ps/worker_machine.h"
#include "tests/runtime/rows/sample_tables.h"
#include "tests/sim/event_queue.h"
#include "tests/sim/mutation.h"

namespace trainyard::sim {

struct WorldConfig {
  std::uint64_t seed = 1;
  int ps = 2;
  int workers = 3;
  std::int64_t steps = 30;  // or, with passes:
  std::int64_t passes = 0;
  std::int64_t samples = 1000;
  int batch = 4;         // of each worker; or
  int global_batch = 0;  // of all
  std::int64_t evaluate_every = 10;
  bool deterministic = false;
  double clip_norm = 0;  // of the mean gradient; 0: none
  // Modes in which not every gradient counts alike: all mean gradients are 1 then, so that the
  // weights tell the number of updates.
  int backup_workers = 0;
  std::optional<runtime::TicketRules> tickets = std::nullopt;
  bool replicate_pushes = false;
  int kills = 0;  // of random tasks at random moments
  bool kill_ps = true;
  bool kill_workers = true;
  bool kill_coordinator_of_leavers = false;  // a moment after the membership has left servers out
  bool one_by_one = false;  // only while all tasks are there and compute: what is left waits
  Mutation mutation = Mutation::kNone;  // a wrong protocol
  Duration kill_within = std::chrono::milliseconds(1500);
  int freezes = 0;         // of random tasks at random moments: they wake again
  double drop = 0.0;       // share of messages that are lost (the caller learns of it)
  double duplicate = 0.0;  // share of requests that are delivered twice
  Duration late{};         // how much later than the first the second time may be
  Duration max_delay = std::chrono::milliseconds(8);
  bool tables = false;        // of embeddings; without clipping
  bool replicate = true;      // chunks and parts of tables, in modes with common steps
  bool deltas = false;        // with tables: every third checkpoint or so is whole
  bool unforeseen = false;    // with tables: rows of some steps are read in the step
  bool small_chunks = false;  // several of a server; also with ps_scalings
  int ps_scalings = 0;        // to a random number of servers at random moments
  int min_ps = 1;             // of them
  int max_ps = 0;
  int scalings = 0;     // to a random number of workers at random moments
  int max_workers = 5;  // of them
  Duration scale_within = std::chrono::milliseconds(600);
  int lengths = 0;  // other numbers of steps at random moments, from 1 to twice as many
  std::optional<Duration> stop_at = std::nullopt;  // request a stop then
  std::optional<std::int64_t> nan_at =
      std::nullopt;                           // worker 1 reports a gradient that is not finite
  Duration limit = std::chrono::minutes(30);  // of simulated time
};

struct WorldResult {
  std::string problem;  // empty: all invariants hold
  std::string outcome;  // succeeded | stopped | failed
  std::int64_t steps = 0;
  std::int64_t lost_steps = 0;
  int pushed_rows_checked = 0;  // versions whose rows were compared with what was pushed
  std::int64_t epochs = 0;
  std::int64_t stopped_at = -1;
  std::int64_t accuracy_hits = 0;
  int kills = 0;
  int worker_kills = 0;  // of these
  int coordinator_kills = 0;
  int freezes = 0;
  int scalings = 0;  // that changed something
  int lengths = 0;   // that changed something
  int ps_scalings = 0;
  int ps_left = 0;   // servers that ended because they were told that they have left
  int moved = 0;     // chunks that a server took over from another
  int replicas = 0;  // replicas that were fetched or compared
  int copied = 0;    // parts that were copied, or updates of them, while training went on
  int most_ranks = 0;
  int left = 0;  // workers that ended because they were told that they have left
  int checkpoints = 0;
  int deltas = 0;            // of these
  std::int64_t skipped = 0;  // backup workers
  std::int64_t spread = 0;   // asynchronous
  std::int64_t partial = 0;
  int clipped = 0;  // steps of the reference whose gradient was scaled down
};

class World {
 public:
  explicit World(WorldConfig config);
  ~World();
  WorldResult run();

 private:
  struct PsNode;
  struct WorkerNode;
  struct Node;
  using Weights = std::vector<std::vector<float>>;  // by chunk

  // A task by its place in the membership: servers first.
  using Owner = int;
  static constexpr Owner kNobody = -1;
  Owner ownerOf(v1::Role role, std::size_t index) const;
  Owner ownerOf(const Node& node) const;
  Owner ownerOfServer(int number) const;
  // Null: its process is not there.
  PsNode* server(int number) const;

  // Something that happens to the owner: while that is frozen, it waits.
  void at(Owner owner, Duration delay, std::function<void()> event);
  Duration networkDelay();
  // Of the second time that a request is delivered.
  Duration lateness(int copy);
  void problem(const std::string& text);

  void followEpoch(const v1::View& view);
  bool upToDate(const WorkerNode& node, std::int64_t version) const;
  void buildReference(std::int64_t from);
  // Nothing that was taken is taken for void.
  bool sameSteps() const {
    return config_.scalings == 0 && config_.ps_scalings == 0 && config_.lengths == 0;
  }
  bool sharesSteps() const { return !config_.tickets && config_.backup_workers == 0; }
  bool plausible(std::int64_t version, std::uint32_t chunk, std::span<const float> weights) const;
  void sendAsk(WorkerNode& node, const v1::TakeRequest& request);
  void checkLeases();
  float clipScale(const Weights& mean, std::int64_t step);
  std::vector<float> gradient(const runtime::StepPlan::Share& share, std::uint32_t chunk) const;

  void makeShard(PsNode& node);
  void startPs(int index);
  void startWorker(int index);
  void tickCoordinator(std::uint32_t start);
  // A task that is still to do something; kNobody when chance hits one that has ended.
  Owner chooseVictim();
  bool allCompute() const;
  void killSomeone();
  void killCoordinator();
  void killTask(Owner victim);
  void freezeSomeone();
  // The planner's part: a membership of other workers.
  void scale();
  void scalePs();
  void changeLength();
  void nextRevision();
  void tellMembership();
  void publishTasks(int ps, int workers);
  bool isMember(std::size_t worker) const;
  bool isServer(std::size_t ps) const;
  bool belongs(const Node& node) const;
  // The link: reports and views.
  void sendReport(Node& node);
  void poke(Node& node, bool urgent);
  v1::MemberReport reportOf(Node& node);
  void onView(Node& node, const v1::View& view);
  // The coordinator's rim.
  void execute(PsNode& node, std::vector<runtime::CoordinatorAction> actions);
  // The servers' rim.
  void workPs(PsNode& node);
  void prepare(PsNode& node, const v1::EpochInfo& epoch);
  // All of a chunk, or of a part of the tables.
  using Given = std::variant<runtime::ps::GivenChunk, runtime::rows::GivenPart>;
  struct Question {
    std::uint32_t chunk = 0;
    int from = 0;
    std::int64_t known = -1;
    std::optional<std::uint64_t> follows =
        std::nullopt;  // asks for what came behind that, as server `follower`
    int follower = 0;
  };
  StatusOr<Given> give(PsNode& node, const v1::EpochInfo& epoch, const Question& question) const;
  // What `take` is told of the answer; nothing: there was none. On the asking node, if it is still
  // in the epoch.
  void ask(PsNode& node, const v1::EpochInfo& epoch, const Question& question,
           std::function<void(PsNode& node, const std::optional<Given>& given)> take);
  Question questionFor(const PsNode& node, const v1::EpochInfo& epoch, std::uint32_t chunk,
                       bool replica) const;
  Status takeOver(PsNode& node, std::uint32_t chunk, const Given& given);
  // The chunks of `left`, from the last on; then the epoch is prepared.
  void fetchNext(PsNode& node, const v1::EpochInfo& epoch, std::vector<std::uint32_t> left);
  void later(PsNode& node, const v1::EpochInfo& epoch, Duration delay,
             std::function<void(PsNode& node)> what);
  void updateNext(PsNode& node);
  void prepared(PsNode& node, const v1::EpochInfo& epoch);
  // replicas.cc: between the servers.
  std::vector<int> startMap() const;
  int serverOf(const v1::EpochInfo& epoch, std::uint32_t chunk) const;
  std::vector<std::uint32_t> replicasOf(const v1::EpochInfo& epoch, int ps) const;
  void followView(PsNode& node, const v1::View& view);
  void fetchReplicas(PsNode& node, const v1::EpochInfo& epoch);
  void copyParts(PsNode& node, const v1::EpochInfo& epoch, std::vector<std::uint32_t> left);
  void forward(PsNode& node);
  void sendUpdate(PsNode& node, runtime::ps::ReplicaUpdate update);
  void replicated(PsNode& node, const v1::ChunkRequestHeader& update);
  void deliver(PsNode& node, std::vector<runtime::ps::ChunkAnswer> answers);
  // The workers' rim.
  void pump(WorkerNode& node);
  void trainer(WorkerNode& node);
  void sendChunk(WorkerNode& node, const runtime::ps::Send& send);
  void sendBody(WorkerNode& node, const runtime::ps::Send& send, const runtime::ps::RowBytes& rows);
  void endPass(WorkerNode& node);
  // table_rim.cc
  void beginRows(WorkerNode& node);
  void bringRows(WorkerNode& node);
  // row_reads.cc
  runtime::RowIds foreseen(std::int64_t first, int count) const;
  void readRows(WorkerNode& node);
  void readPart(WorkerNode& node, std::size_t part);
  void readPartLater(WorkerNode& node, std::size_t part);
  void onReadReply(WorkerNode& node, const runtime::ps::Send& send, const Status& transport,
                   const v1::ChunkReplyHeader& header,
                   const std::shared_ptr<const std::vector<float>>& payload);
  // An answer is stored as it arrives, which takes a while; views may come in between, and the
  // connection may break. `put` is called when all of it is there.
  void storeLater(WorkerNode& node, const runtime::ps::Send& send,
                  std::function<void(WorkerNode&)> put);
  void onRowReply(WorkerNode& node, const runtime::ps::Send& send, const Status& transport,
                  const v1::ChunkReplyHeader& header,
                  const std::shared_ptr<const std::vector<float>>& payload);
  // All rows of a checkpoint, or of a snapshot on top of its base.
  std::vector<runtime::TableRows> rowsOf(const runtime::Manifest& manifest) const;
  std::vector<runtime::TableRows> wholeRowsOf(const runtime::ps::Snapshot& snapshot) const;
  static std::size_t readRows(runtime::ps::Snapshot& snapshot, std::size_t begin, std::size_t end);
  void checkRows(const runtime::ps::Snapshot& snapshot);
  void checkPushedRows();
  void loadRows(PsNode& node, const v1::EpochInfo& epoch);
  bool isPart(std::uint32_t chunk) const { return chunk >= placement_.chunks.size(); }
  void onChunkReply(WorkerNode& node, const runtime::ps::Send& send, const Status& transport,
                    const v1::ChunkReplyHeader& header,
                    std::shared_ptr<const std::vector<float>> payload);
  // checks.cc
  void checkPositions();
  void checkLedger(const runtime::Manifest& manifest);
  bool allGone() const;
  // mutations.cc: each leaves what it is given as it is, but for the mutation that is about it.
  bool broken(Mutation mutation) const { return config_.mutation == mutation; }
  void breakReport(v1::MemberReport& report) const;
  void breakView(const WorkerNode& node, v1::View& view) const;
  void breakPush(const PsNode& server, v1::ChunkRequestHeader& header);
  void breakRows(const runtime::ps::Send& send, v1::ChunkReplyHeader& header) const;
  void breakCutPush(const runtime::ps::Send& send, std::vector<float> gradient);
  void breakContents(runtime::ps::GivenChunk& given) const;
  void breakContents(runtime::rows::GivenPart& given) const;
  void breakQuestion(v1::TakeRequest& request);
  void breakManifest(runtime::Manifest& manifest) const;
  void breakLeavers(int from, int to);
  void breakMembership(v1::Membership& membership);

  WorldConfig config_;
  Rng rng_;
  TimePoint now_{std::chrono::hours(1)};
  EventQueue events_;

  runtime::StepPlan plan_;                             // of the newest epoch
  std::pair<std::uint32_t, std::int64_t> plan_named_;  // by which life of the coordinator
  std::int64_t plan_epoch_ = 0;                        // its number
  std::set<std::int64_t> epoch_starts_;  // steps that epochs began with, but the first
  std::int64_t lineage_ = 0;             // first epoch whose versions are those of the newest
  runtime::Placement placement_;
  std::unique_ptr<runtime::Optimizer> optimizer_;
  std::unique_ptr<runtime::LearningRate> learning_rate_;
  std::vector<Weights> reference_;                       // by version
  std::vector<std::vector<Weights>> reference_slots_;    // by version, slot
  std::vector<double> reference_norms_;                  // by step, with clipping
  std::unique_ptr<runtime::rows::SampleTables> tables_;  // null: none
  runtime::ps::RowGrid grid_;
  std::vector<runtime::rows::LoneRows> reference_rows_;  // by version
  runtime::rows::PushedRows pushed_rows_;                // without common steps

  v1::Membership membership_;
  int wanted_workers_ = 0;
  int wanted_ps_ = 0;
  int ps_places_ = 0;
  std::vector<std::unique_ptr<PsNode>> ps_;
  std::vector<std::unique_ptr<WorkerNode>> workers_;
  std::vector<std::uint32_t> ps_starts_, worker_starts_;
  std::vector<bool> ps_done_, worker_done_;
  std::map<Owner, TimePoint> frozen_until_;
  std::int64_t killed_in_ = 0;  // epoch in which somebody was killed last

  // The disk.
  std::vector<runtime::Manifest> manifests_;
  std::map<std::string, runtime::ps::Snapshot> files_;
  std::optional<v1::Evaluation> finished_;
  struct Used {
    std::int64_t epoch;
    std::int64_t step;
    int rank;
    runtime::StepPlan::Share share;
  };
  std::vector<Used> used_;
  std::int64_t computed_ = 0;  // gradients
  std::int64_t made_up_ = 0;   // numbers given by mutations
  std::int64_t told_ = 0;      // revision that the coordinator was told last
  WorldResult result_;
};

}  // namespace trainyard::sim
