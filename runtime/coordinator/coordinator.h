// The coordinator of a job: who computes together (epochs), from which state, when to take a
// checkpoint, when to stop. A pure state machine: reports and time in, actions out.
//
//   SEALING --all present, sealed--> PREPARING --all ps prepared--> ACTIVE --steps taken,
//   evaluated,
//      ^                                |                              |     final checkpoint-->
//      DONE
//      |________ member lost or new ____|______________________________|
//   ACTIVE --requestStop--> STOPPING --workers idle, checkpoint--> STOPPED;  any --abort--> FAILED
//
// A new epoch starts from what the servers hold: the smallest version over all chunks (readable
// everywhere, see ps/shard.h). For a server that is empty the one stands in that keeps the replicas
// of its chunks (replicas.cc): another server, for an only one the first worker; when that is empty
// too, or there is none, the epoch starts from the newest checkpoint, or, with none, from the seed.
//
// A coordinator that starts again knows nothing of the epoch that ran. The others tell it
// (MemberReport.begun), so that it decides as the former one would have.
//
// Workers that the membership brings or takes away while the job computes change at a step
// boundary (change.cc): the epoch goes on until all new ones have reported, then the workers hold
// after their step, and the next epoch starts where they rest. Nothing that was computed is lost.
// Another number of steps is taken over in the same way; one that is passed already ends the job
// where the workers rest. After the job's last step it comes too late.
//
// Servers that the membership brings or takes away change at a step boundary too (servers.cc): the
// next epoch has another map of chunks to servers, and whoever is to hold a chunk fetches it from
// its former holder before the epoch begins. A server that leaves is let go when it has: until then
// the former map holds. The coordinator's own server stays.
//
// With strategy AllReduce there are no servers: each worker holds all of the state (ring.cc).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "base/metrics/bucket_counts.h"
#include "base/metrics/catalogue.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/coordinator/progress_rate.h"
#include "runtime/coordinator/push_tickets.h"
#include "runtime/coordinator/step_places.h"
#include "runtime/data/step_plan.h"
#include "runtime/placement/moves.h"
#include "runtime/tensor/square_sum.h"
#include "trainyard/v1/agent.pb.h"
#include "trainyard/v1/coordinator.pb.h"
#include "trainyard/v1/measurements.pb.h"

namespace trainyard::runtime {

inline constexpr std::uint32_t kProtocol = 6;

struct CoordinatorConfig {
  std::string job_uid;
  std::string job_digest;
  v1::Incarnation self;
  bool ring = false;          // strategy AllReduce
  int processes_per_pod = 1;  // of a worker, each a member
  // The grid of chunks and where the placement puts them; empty: the servers are always the same.
  std::vector<ChunkLoad> chunks;
  int grid_ps = 0;                     // servers of that placement
  bool replicate = true;               // in modes with common steps
  bool replicate_pushes = false;       // in the others
  std::int64_t steps = 0;              // of the job, until a membership says otherwise; or
  std::int64_t passes = 0;             // over the data, whose size the workers tell
  int batch_size = 0;                  // samples of each worker in a step; or
  int global_batch_size = 0;           // of all workers
  int backup_workers = 0;              // mode Sync: gradients that a step does without
  std::optional<TicketRules> tickets;  // modes Async and BoundedDelay
  std::string init_manifest;  // a fresh start takes this checkpoint's weights; "": the seed's
  std::int64_t evaluate_every = 0;
  Duration checkpoint_every = std::chrono::seconds(50);
  std::int64_t used_epoch = 0;  // checkpoints of epochs up to this one are there, usable or not
  Duration heartbeat = std::chrono::seconds(1);    // a reply is held back at most this long
  Duration dead_after = std::chrono::seconds(5);   // without a report
  Duration stop_limit = std::chrono::seconds(60);  // then stop without a new checkpoint
  Duration leave_limit = std::chrono::seconds(30);
  // So long a server that is to leave and is silent is waited for: without it the job goes back to
  // a checkpoint.
  Duration leaver_patience = std::chrono::seconds(10);
  // The job was over before this process started (see FinishAction): members that come late are
  // told so.
  std::optional<v1::Evaluation> finished;
};

// Answer a parked report.
struct ReplyAction {
  std::uint64_t ticket;
  v1::View view;
};
// Answer a question for a ticket, a place or samples.
struct TakeReplyAction {
  std::uint64_t call;
  v1::TakeReply reply;
};
// Write this manifest (and prune older ones), then call onCommitted.
struct CommitAction {
  Manifest manifest;  // what the coordinator knows; the rim adds model, data and time
};
// All is done: make that durable, then call onFinishRecorded. Without it a worker that dies after
// the last step could not learn that the others have left.
struct FinishAction {
  std::int64_t steps = 0;
  v1::Evaluation evaluation;
};
struct EvaluationAction {
  v1::Evaluation evaluation;
};
// Something worth a line in the log.
struct LogAction {
  std::string text;
  bool warning = false;
};
using CoordinatorAction = std::variant<ReplyAction, TakeReplyAction, CommitAction, FinishAction,
                                       EvaluationAction, LogAction>;

// Not thread-safe.
class Coordinator {
 public:
  // `newest` is the newest restorable checkpoint in the job directory.
  Coordinator(CoordinatorConfig config, v1::Membership membership, std::optional<Manifest> newest,
              TimePoint now);

  // A higher revision of the membership; an equal or lower one changes nothing.
  void setMembership(const v1::Membership& membership, TimePoint now);
  // A member's word; `ticket` names the call that waits for the answer.
  void onReport(const v1::MemberReport& report, std::uint64_t ticket, TimePoint now);
  // A worker's question (see TakeRequest); `call` names the call that waits for the answer.
  void onTake(const v1::TakeRequest& request, std::uint64_t call, TimePoint now);
  // Result of a CommitAction.
  void onCommitted(const Manifest& manifest, const Status& status, TimePoint now);
  // Result of a FinishAction; a failure is said and otherwise ignored.
  void onFinishRecorded(const Status& status, TimePoint now);
  // The last checkpoint may take `within` (nullopt: stop_limit) from now on. Of several requests
  // the earliest end counts.
  void requestStop(TimePoint now, std::optional<Duration> within = std::nullopt);
  void onTick(TimePoint now);
  std::vector<CoordinatorAction> takeActions();

  v1::JobProgress progress(TimePoint now) const;
  // Sets what is of checkpoints.
  void measure(v1::Measurements& measured) const;
  v1::Phase phase() const { return phase_; }
  // Over, and every member has taken note (or the time for that has passed).
  bool finished(TimePoint now) const;
  std::string waitingFor(TimePoint now) const;
  const std::string& failure() const { return failure_; }
  // What the workers train on; all agree. Empty before the first has joined.
  v1::DataFingerprint data() const;

 private:
  struct MemberKey {
    v1::Role role;
    std::uint32_t index;
    auto operator<=>(const MemberKey&) const = default;
  };
  struct Member {
    v1::MemberReport report;  // newest of its newest incarnation
    bool joined = false;
    bool in_epoch = false;  // of the epoch that runs
    bool wanted = true;     // by the membership; else it leaves with the epoch
    // Came after the first epoch: nobody waits for it. A server is none once an epoch with it has
    // begun, a worker once it is announced.
    bool newcomer = false;
    bool source = false;   // not of the epoch that is being prepared, but others fetch from it
    v1::MemberTask place;  // where the newest membership that had it said it was
    TimePoint last_seen{};
    std::optional<std::uint64_t> ticket;
    TimePoint parked_since{};
  };
  struct PendingCheckpoint {
    std::int64_t version = 0;
    TimePoint since{};
    bool committing = false;
  };

  std::string nameOf(const MemberKey& key) const;
  std::string refusalOf(const v1::MemberReport& report, const MemberKey& key) const;
  void accept(const MemberKey& key, const v1::MemberReport& report, TimePoint now);
  void answer(Member& member, TimePoint now);
  v1::View viewFor() const;
  void changed();

  bool present(const Member& member, TimePoint now) const;
  void evaluate(TimePoint now);
  void checkLiveness(TimePoint now);
  void beginEpoch(const std::string& why, TimePoint now, bool planned = false);
  // servers.cc: who holds which chunk.
  bool elastic() const { return !config_.chunks.empty(); }
  bool holdsChunks(std::uint32_t ps) const;
  bool owns(const MemberKey& key, const Member& member) const;
  bool isHolder(const MemberKey& key, const Member& member, TimePoint now) const;
  bool takesPart(const MemberKey& key, const Member& member, bool within_step, TimePoint now) const;
  void placeChunks(bool kept);
  void addSources(const std::vector<int>& from);
  void addSource(int server, Member& member);
  void chunksAreThere();
  // replicas.cc: who stands in for a server, and what a coordinator that starts again is told.
  struct Holding {
    int server = -1;  // who has all of its chunks; -1: nobody
    std::int64_t lowest = 0, highest = -1;
  };
  static MemberKey keyOf(int server);
  bool canKeep() const;
  bool keeps(const MemberKey& key) const;
  Holding holdingOf(int server, TimePoint now) const;
  std::optional<Holding> replicasOf(int server, TimePoint now) const;
  void adoptBegun();
  v1::EpochInfo newestBegun() const;
  bool adoptMap(const v1::EpochInfo& epoch);
  void adoptLedger(const v1::EpochInfo& epoch);
  void meetLeaver(const v1::MemberReport& report, const MemberKey& key);
  bool knowsHolders(TimePoint now);
  void tellPast();
  void followKnownNorm();
  bool serversPlaced(TimePoint now) const;
  // change.cc: members that come and go.
  void dismiss(const MemberKey& key, const Member& member);
  void dismissCall(std::uint64_t ticket, std::int64_t revision);
  void dismissUnwanted();
  bool dismissed(const v1::MemberReport& report, const MemberKey& key) const;
  bool awaited(const MemberKey& key, const Member& member, TimePoint now) const;
  bool canJoin(const MemberKey& key, const Member& member, TimePoint now) const;
  bool followChange(TimePoint now);
  bool changeDue(TimePoint now) const;
  std::int64_t wantedSteps() const;
  bool lengthDue() const;
  std::string changesAt(std::int64_t version) const;
  std::optional<std::int64_t> restingVersion(std::uint64_t since) const;
  void trySealed(TimePoint now);
  struct Held {
    bool lost = false;                      // a server is empty
    std::int64_t lowest = 0, highest = -1;  // versions of the servers' chunks; -1: there are none
  };
  Held heldByServers(TimePoint now);
  Held enlist(TimePoint now);
  // ring.cc: who holds the state.
  bool holds(const MemberKey& key) const;
  bool writes(const MemberKey& key) const;
  const v1::MemberTask* placeOf(const MemberKey& key, const Member& member) const;
  bool placeKnown(const MemberKey& key, const Member& member) const;
  bool placesKnown(TimePoint now) const;
  Held enlistRing();
  void followRing(const MemberKey& key, const v1::MemberReport& report, TimePoint now);
  void startFrom(TimePoint now);
  void tryPrepared(TimePoint now);
  void followProgress(TimePoint now);
  void keepNormPart(const MemberKey& key, const v1::MemberReport& report, TimePoint now);
  void followNorm();
  void replyToTake(std::uint32_t worker, v1::TakeReply reply);
  std::optional<v1::TakeReply> answerTake(const v1::TakeRequest& request);
  void followTakes(TimePoint now);
  void endTakes();
  void startTickets(bool kept);
  void followTickets(TimePoint now);
  void stopTickets();
  void followEvaluation();
  void followCheckpoint(TimePoint now);
  void tryCommit(std::int64_t version, TimePoint now);
  void checkpointFailed(std::int64_t version, const std::string& why, TimePoint now);
  void followStop(TimePoint now);
  bool evaluates() const;
  void tryDone(TimePoint now);
  void fail(const std::string& why, TimePoint now);
  void enter(v1::Phase phase, TimePoint now);
  void planSteps();
  void recordEpoch();
  void addRecord(const EpochRecord& record);
  std::int64_t stepsFrom(std::int64_t step, std::int64_t position, std::int64_t samples) const;
  std::int64_t stepSamples() const;
  int pushSamples() const;
  int scorers(std::int64_t version) const;
  std::int64_t heldVersion() const;
  bool over() const;
  int workers() const;

  const CoordinatorConfig config_;
  v1::Membership membership_;
  // Those of the membership, while an epoch runs also its workers that are to leave, and servers
  // that are to leave and hold chunks.
  std::map<MemberKey, Member> members_;
  std::set<MemberKey> dismissed_;  // have belonged to the job once
  ChunkMap held_;                  // who holds what; no chunks: nobody, as far as is known
  bool held_replicated_ = false;
  // By server of held_, who has its chunks: itself, or the server of its replicas.
  std::map<int, int> givers_;
  ChunkMap next_;  // of the epoch that is being prepared or runs
  // When the newest membership came, until an epoch with it has taken a step.
  std::optional<TimePoint> changed_at_;
  // The view's sequence since which workers rest after their step, to change or to stop; 0: they do
  // not.
  std::uint64_t hold_ = 0;
  bool uneven_ = false;  // some servers had taken the epoch's first step when it began
  std::uint64_t sequence_ = 1;
  v1::Phase phase_ = v1::PHASE_SEALING;
  TimePoint phase_since_{};
  v1::EpochInfo epoch_;
  std::int64_t history_since_ = 0;  // first epoch of those that share their weights' history
  int ring_failures_ = 0;           // in a row, without a step between them
  std::int64_t ring_failed_at_ = -1;
  std::int64_t steps_ = 0;  // of the job; 0: not known yet
  StepPlan plan_;           // of epoch_, from PREPARING on
  std::vector<EpochRecord> epochs_;
  std::optional<Manifest> newest_;
  std::int64_t highest_epoch_ = 0;
  std::int64_t resumed_from_ = -1;
  std::int64_t lost_steps_ = 0;
  std::int64_t progress_ = 0;
  ProgressRate rate_;
  double loss_ = 0;
  std::int64_t loss_step_ = -1;
  v1::Evaluation evaluation_;
  // Clipping: what each server has summed under this epoch, the norm told last, and the newest view
  // that holds news for workers, who need no norm.
  struct NormPart {
    std::int64_t step = -1;
    SquareSum squares;
  };
  std::map<MemberKey, NormPart> norm_parts_;
  std::optional<v1::GradientNorm> norm_;
  std::uint64_t worker_sequence_ = 1;
  // First epoch of those that share their weights' history and their slices of the evaluation set.
  std::int64_t lineage_ = 0;
  std::map<std::int64_t, std::map<std::uint32_t, v1::EvaluationPart>> parts_;  // by version
  std::optional<PendingCheckpoint> checkpoint_;
  std::int64_t committing_ = -1;
  // Modes that ask: the newest question of each worker under this epoch.
  struct Take {
    v1::TakeRequest request;
    std::optional<std::uint64_t> call;  // waits for its answer
    TimePoint since{};
    bool waited = false;  // was not answered at once
    std::optional<v1::TakeReply> reply;
  };
  std::map<std::uint32_t, Take> takes_;
  StepPlaces places_;
  std::optional<PushTickets> tickets_;
  std::map<std::uint32_t, v1::Incarnation> computed_;  // workers of the newest epoch that began
  // Asynchronous: the newest version of a drain that all servers have copied; and, by version,
  // which samples had been pushed when it was taken. Others may be pushed before its commit.
  std::int64_t captured_ = -1;
  struct SampleMark {
    std::int64_t position = 0;
    std::vector<SampleRange> unread;
  };
  std::map<std::int64_t, SampleMark> marks_;
  TimePoint next_checkpoint_{};
  Duration checkpoint_lead_ = std::chrono::milliseconds(300);
  UnixMillis checkpoint_unix_ms_ = 0;
  std::optional<TimePoint> epoch_ended_;  // until the next one has taken a step
  BucketCounts epoch_change_times_{metric("trainyard_epoch_change_seconds").buckets};
  BucketCounts checkpoint_times_{metric("trainyard_checkpoint_duration_seconds").buckets};
  TimePoint committing_since_{};    // of the version being committed
  bool checkpoint_failed_ = false;  // said once
  std::int64_t unwritable_ = -1;    // of this epoch's versions: is not tried again
  bool finishing_ = false;
  bool stop_requested_ = false;
  TimePoint stop_since_{};
  TimePoint stop_by_{};
  std::int64_t stop_at_ = -1;
  std::string failure_;
  std::string waiting_;
  std::vector<CoordinatorAction> actions_;
};

}  // namespace trainyard::runtime
