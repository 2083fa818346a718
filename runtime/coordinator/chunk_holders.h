// Which server holds which chunk, and which part of the tables (see ChunkLoad), from one epoch to
// the next. What counts is the layout of the newest epoch that began: until the next one begins
// everywhere, its holders keep what they give away.
//
// What is held twice: the server after the one that holds a chunk (the first worker, where there is
// no other server) keeps a replica of it, which has taken every step that anybody knows the outcome
// of.
//
// Chunks are where they are to be when an epoch begins. Parts of tables stay with who has them, and
// are copied while the epoch runs (EpochInfo.copies); when all are, an epoch begins in which they
// have moved. Until then a part has no replica where nobody but its holder has all of it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "runtime/coordinator/coordinator_config.h"
#include "runtime/coordinator/member.h"
#include "runtime/coordinator/membership.h"
#include "runtime/coordinator/outbox.h"
#include "runtime/placement/layout.h"
#include "trainyard/v1/coordinator.pb.h"

namespace trainyard::runtime {

// Of all chunks together.
struct Held {
  bool lost = false;                      // nobody has some of them
  std::int64_t lowest = 0, highest = -1;  // versions; -1: there are none
};

// Not thread-safe. Members that nobody waits for (`awaited`) count as gone.
class ChunkHolders {
 public:
  explicit ChunkHolders(const CoordinatorConfig& config);

  // Servers may come and go; else they are always the same, and what one says it holds counts.
  bool elastic() const { return !chunks_.empty(); }
  // In the epoch that began last: chunks or replicas.
  bool holds(std::uint32_t ps) const;
  // In the epoch that runs: chunks.
  bool owns(const MemberKey& key, const Member& member) const;
  // Whether it is the worker that keeps replicas, or copies them, in `epoch`, which is being
  // prepared or runs.
  bool keeps(const MemberKey& key, const v1::EpochInfo& epoch) const;

  // Takes the layout of an epoch that began under a former coordinator. False: it is of other
  // chunks than this job's.
  bool adopt(const v1::EpochInfo& epoch);
  // Everybody who holds something is a member.
  bool allKnown(const Membership& membership) const;
  // The others can be told where each server is, and the worker that may keep replicas: of a life
  // that is newer than the document here that is not known yet.
  bool allPlaced(const Membership& membership, const std::set<MemberKey>& awaited) const;
  // What there is to start from, and who would give it.
  Held findHeld(const Membership& membership, const std::set<MemberKey>& awaited);
  // After that: a server that is to leave takes part in the next epoch, since others have to copy
  // its parts first.
  bool staysFor(std::uint32_t ps, const Membership& membership) const;
  // The layout of the epoch that is announced, whose members are in the membership. `kept`: it goes
  // on from what findHeld() found; else all is loaded. `within_step`: some have taken a step and
  // others have not.
  void place(bool kept, bool within_step, const Membership& membership, v1::EpochInfo& epoch,
             Outbox& out);
  // All servers of the epoch have what it starts from.
  void begin(const v1::EpochInfo& epoch);
  // In the epoch that runs: parts are to be copied; and that has been done.
  bool copies() const { return !held_.copies.empty(); }
  bool copied(const Membership& membership) const;
  // Parts of tables that only one server has in the epoch that has begun last; and in the one
  // before it.
  int unguarded() const;
  int formerUnguarded() const { return former_unguarded_; }

 private:
  struct Holding {
    int server = -1;  // who has it; -1: nobody
    std::int64_t lowest = 0, highest = -1;
  };
  std::optional<Holding> ownOf(int server, const Membership& membership) const;
  void listReplicas(const Membership& membership);
  Holding holdingOf(std::uint32_t chunk, const std::map<int, std::optional<Holding>>& own) const;
  ChunkMap lastTarget() const;
  bool isSame(int server, const Membership& membership) const;
  bool canKeep(const Membership& membership) const;
  bool isHere(int server, const Membership& membership) const;
  bool hasCopied(int server, const Membership& membership) const;
  bool allCopied(const Membership& membership) const;
  bool has(int server, std::uint32_t part, const Membership& membership) const;
  void rememberHolders(const v1::EpochInfo& epoch);
  void announce(bool kept, const std::vector<int>& from, v1::EpochInfo& epoch) const;
  void addSources(const std::vector<int>& from, const Membership& membership, v1::EpochInfo& epoch,
                  Outbox& out) const;
  void tellCopies(const v1::EpochInfo& epoch, Outbox& out) const;

  const std::vector<ChunkLoad> chunks_;
  const int grid_ps_;
  const bool replicate_;
  int former_unguarded_ = 0;
  Layout held_;  // who holds what; no chunks: nobody, as far as is known
  std::int64_t held_epoch_ = 0;
  // By server, or kWorkerKeeper: its process that held_ is about.
  std::map<int, v1::Incarnation> held_by_;
  // What findHeld() has found: who is here; by server, versions of replicas by chunk; and by chunk
  // of held_ who has it, its holder or its replica's keeper.
  std::set<MemberKey> here_;
  std::map<int, std::map<std::uint32_t, std::int64_t>> replicas_;
  std::vector<int> givers_;
  Layout next_;  // of the epoch that is being prepared or runs
};

}  // namespace trainyard::runtime
