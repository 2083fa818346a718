// Who computes together: the phases of an epoch, when it may go on to the next one, and from where
// it starts.
//
// A new epoch starts from what the servers hold: the smallest version over all chunks (readable
// everywhere, see ps/shard.h). For a server that is empty the one stands in that keeps the replicas
// of its chunks (ChunkHolders): another server, for an only one the first worker; when that is
// empty too, or there is none, the epoch starts from the newest checkpoint, or, with none, from the
// seed.
//
// With strategy AllReduce there are no servers: the workers put their gradients together among
// themselves, and each holds all of the state. An epoch needs every one of them; when one fails,
// all meet again under the next, which goes on from the newest version that any of them holds.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "base/core/clock.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/coordinator/chunk_holders.h"
#include "runtime/coordinator/coordinator_config.h"
#include "runtime/coordinator/job_steps.h"
#include "runtime/coordinator/member.h"
#include "runtime/coordinator/membership.h"
#include "runtime/coordinator/outbox.h"
#include "trainyard/v1/agent.pb.h"
#include "trainyard/v1/coordinator.pb.h"

namespace trainyard::runtime {

// Not thread-safe.
class Epochs {
 public:
  // `used`: numbers of epochs up to this one are taken.
  Epochs(const CoordinatorConfig& config, std::int64_t used, TimePoint now);

  v1::Phase phase() const { return phase_; }
  TimePoint phaseSince() const { return phase_since_; }
  // Done, stopped or failed.
  bool over() const;
  // ACTIVE or STOPPING.
  bool computing() const;
  void enter(v1::Phase phase, TimePoint now, Outbox& out);
  // The job was over before.
  void setDone() { phase_ = v1::PHASE_DONE; }

  // The epoch that is prepared or runs; while sealing its number alone.
  const v1::EpochInfo& info() const { return info_; }
  std::int64_t number() const { return info_.epoch(); }
  // Some servers had taken the epoch's first step when it began.
  bool uneven() const { return uneven_; }
  const ChunkHolders& chunks() const { return chunks_; }

  // Whether the epoch, or the one that is to begin, is nothing without it. A task that was added
  // while the job computes is not: it takes part as soon as it is there. A server that is to leave
  // is, as long as others need what it holds.
  bool awaited(const MemberKey& key, const Member& member, const Membership& membership,
               TimePoint now) const;
  std::set<MemberKey> awaited(const Membership& membership, TimePoint now) const;
  // Whether it stays though nobody wants it: a worker that computes until the epoch ends, a server
  // until others hold its chunks.
  bool needs(const MemberKey& key, const Member& member) const;
  // Whether an epoch starts from what it holds.
  bool holds(const MemberKey& key) const;
  // Whose parts make a checkpoint.
  std::set<MemberKey> writers(const Membership& membership) const;
  // Awaited members that are not there, or not as far as the others: "worker-0, ps-1".
  std::string waitingFor(const Membership& membership, TimePoint now) const;
  // Why the epoch that is prepared or runs cannot go on; nothing: it can.
  std::optional<std::string> broken(const Membership& membership, TimePoint now) const;

  // A member knows epochs up to this number.
  void heard(std::int64_t number);
  // Nobody of the epoch gets an answer any more once the next one is sealed.
  void end(const std::string& why, bool planned, TimePoint now, Outbox& out);

  // Before the first epoch of this process: who held what in the one that ran before, and the
  // history that it belonged to. False: it is of other chunks than this job's.
  bool adoptHolders(const v1::EpochInfo& epoch) { return chunks_.adopt(epoch); }
  void adoptHistory(const v1::EpochInfo& epoch) {
    history_since_ = epoch.lineage();
    history_from_ = epoch.lineage_from();
  }

  // A member may know this epoch's number from an earlier coordinator: what it sealed was another
  // epoch. Then this one takes another number.
  bool renumber(const Membership& membership, Outbox& out);
  // All are there, have sealed the epoch and can be found by the others.
  bool sealed(const Membership& membership, TimePoint now) const;
  // Begins the announcement of the epoch: who takes part. Returns what it could start from.
  Held enlist(const Membership& membership, TimePoint now, v1::EpochInfo& epoch);
  // Goes on with it, once the membership knows who takes part: where it starts, who is to hold
  // what. True: nothing is lost; without common steps that alone does not say at which step.
  bool start(const Held& held, const Membership& membership, const JobSteps& steps,
             const std::optional<Manifest>& newest, v1::EpochInfo& epoch, Outbox& out);
  // The announcement is complete.
  void prepare(const v1::EpochInfo& epoch, TimePoint now, Outbox& out);

  struct Prepared {
    bool all = false;
    std::string problem;  // why a member cannot, with its name
  };
  Prepared prepared(const Membership& membership) const;
  // All that hold the state have it.
  void begin(TimePoint now, Outbox& out);

  void tell(v1::View& view) const;
  void tell(const Membership& membership, v1::JobProgress& progress) const;

 private:
  bool takesPart(const MemberKey& key, const Member& member, const Membership& membership,
                 bool within_step, bool lost) const;
  bool seenBegun(const Membership& membership) const;
  Held enlistWorkers(const Membership& membership, v1::EpochInfo& epoch) const;

  const v1::Incarnation self_;
  const bool ring_;
  const bool async_;
  const int backup_workers_;
  const std::string init_manifest_;
  const Duration dead_after_;
  const Duration leaver_patience_;
  v1::Phase phase_ = v1::PHASE_SEALING;
  TimePoint phase_since_;
  v1::EpochInfo info_;
  ChunkHolders chunks_;
  std::int64_t highest_;
  std::int64_t history_since_ = 0;  // first epoch of those that share their weights' history
  std::string history_from_;        // the manifest that this began with; "": none
  bool uneven_ = false;
  std::uint64_t begun_view_ = 0;  // the view that says that the epoch has begun
};

}  // namespace trainyard::runtime
