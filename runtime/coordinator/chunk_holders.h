// Which server holds which chunk, and which part of the tables (see ChunkLoad), from one epoch to
// the next. What counts is the map of the newest epoch that began: until the next one begins
// everywhere, its holders keep what they give away.
//
// What is held twice: the server after the one that holds a chunk (the first worker, where there is
// no other server) keeps a replica of it, which has taken every step that anybody knows the outcome
// of.
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
#include "runtime/placement/moves.h"
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
  // Whether it is the worker that keeps replicas in `epoch`, which is being prepared or runs.
  bool keeps(const MemberKey& key, const v1::EpochInfo& epoch) const;

  // Takes the map of an epoch that began under a former coordinator. False: it is of other chunks
  // than this job's.
  bool adopt(const v1::EpochInfo& epoch);
  // Everybody who holds something is a member.
  bool allKnown(const Membership& membership) const;
  // The others can be told where each server is, and the worker that may keep replicas: of a life
  // that is newer than the document here that is not known yet.
  bool allPlaced(const Membership& membership, const std::set<MemberKey>& awaited) const;
  // What there is to start from, and who would give it.
  Held findHeld(const Membership& membership, const std::set<MemberKey>& awaited);
  // The map of the epoch that is announced, whose members are in the membership. `kept`: it goes on
  // from what findHeld() found; else all is loaded.
  void place(bool kept, const Membership& membership, v1::EpochInfo& epoch, Outbox& out);
  // All servers of the epoch have what it starts from.
  void begin(const v1::EpochInfo& epoch);

 private:
  struct Holding {
    int server = -1;  // who has all of its chunks; -1: nobody
    std::int64_t lowest = 0, highest = -1;
  };
  std::set<int> holders() const;
  Holding holdingOf(int server, const Membership& membership,
                    const std::set<MemberKey>& awaited) const;
  std::optional<Holding> replicasOf(int server, const Membership& membership,
                                    const std::set<MemberKey>& awaited) const;
  bool canKeep(const Membership& membership) const;
  void rememberHolders(const v1::EpochInfo& epoch);
  void addSources(const std::vector<int>& from, const Membership& membership, v1::EpochInfo& epoch,
                  Outbox& out) const;

  const std::vector<ChunkLoad> chunks_;
  const int grid_ps_;
  const bool replicate_;
  ChunkMap held_;  // who holds what; no chunks: nobody, as far as is known
  bool held_replicated_ = false;
  std::map<int, v1::Incarnation> held_by_;  // by server, its process that held_ is about
  // By server of held_, who has its chunks: itself, or the server of its replicas.
  std::map<int, int> givers_;
  ChunkMap next_;  // of the epoch that is being prepared or runs
};

}  // namespace trainyard::runtime
