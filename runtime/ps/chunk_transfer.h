// Chunks on their way between one worker and the servers: what is to be sent, how many requests a
// server has still to receive, which answer belongs to which attempt. No sockets, no clock.
//
// Where a place in the window is free only with the answer, which waits for all workers, these keep
// abreast of each other and of all servers: one that is ahead answers while others still receive,
// and its answers share a link with what those wait for (docs/experiments.md, "What this table
// found"). Open is a chunk that waits to be sent, or is under way, or is being stored. One is sent
// when its place among its server's chunks is within a window of
// - the first open one of its server, and
// - the place that is as large a part of its server's chunks as the first open one is of its own
//   server's, of that server where this part is smallest.
// Nobody waits for a payload that is not there. All workers order chunks by this part, so that of
// those that are not complete everywhere the first is held back by nobody who has its payload, in
// whatever order gradients become ready: a step always gets on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "base/core/clock.h"

namespace trainyard::runtime::ps {

// Not thread-safe.
class ChunkTransfer {
 public:
  // `ps_of_chunk` by chunk id; at most `window` requests to one server that it has not yet
  // received or, with `until_answer`, a window as above. Of what can be sent at once, what goes to
  // server `first` is sent first, then what goes to those after it: workers that each begin with
  // another one do not all fill the same link.
  ChunkTransfer(std::vector<int> ps_of_chunk, std::size_t window, bool until_answer,
                std::size_t first = 0);

  std::size_t size() const { return tasks_.size(); }
  int serverOf(std::uint32_t chunk) const { return ps_of_chunk_[chunk]; }
  // The server holds more chunks than fit the window, so a place must be free before the answer.
  // For the others, and with `until_answer`, a receipt would only cost a message.
  bool wantsReceipt(int ps) const { return servers_[static_cast<std::size_t>(ps)].receipts; }

  // Other servers hold the chunks from now on; after forgetSent().
  void setServers(const std::vector<int>& ps_of_chunk);
  // The window to this server from now on, until setServers(). None of those under way is taken
  // back.
  void setWindow(int ps, std::size_t window);
  // Nothing that was sent so far will be answered (a new epoch).
  void forgetSent();
  // All chunks anew: each waits for ready(), or is queued at once.
  void begin(bool queued);
  // After begin(): this one is not wanted, so it is done.
  void skip(std::uint32_t chunk);
  // After forgetSent(): sends again what is not done; `ready` is kept.
  void resume();
  // After resume(): the chunk is sent again although it was done; it waits for queueIfReady().
  void redo(std::uint32_t chunk);
  // The chunk's payload is there. It is queued unless `hold`.
  void ready(std::uint32_t chunk, bool hold);
  // Queues the chunk if its payload is there and nothing is under way.
  void queueIfReady(std::uint32_t chunk);
  void queueAllReady();
  bool isReady(std::uint32_t chunk) const { return tasks_[chunk].ready; }
  // Some payload is there that was not sent yet.
  bool anyReady() const;
  // Sends the chunk again, not before the time given.
  void again(std::uint32_t chunk, TimePoint not_before);

  struct Sent {
    std::uint32_t chunk = 0;
    std::uint64_t attempt = 0;
  };
  // What to send now to servers [0, servers), in the order of the chunks of each.
  std::vector<Sent> take(TimePoint now, std::size_t servers);
  // When to take again although nothing happens.
  std::optional<TimePoint> wakeAt() const;

  // The server has received the request: its place in the window is free.
  void onReceived(std::uint32_t chunk, std::uint64_t attempt);
  // True when this answers the newest attempt; then storing(), again() or drop() follows.
  bool onReply(std::uint32_t chunk, std::uint64_t attempt);
  void storing(std::uint32_t chunk);
  void drop(std::uint32_t chunk);
  // The copy is finished. True: the chunk is done. False: it was wanted anew meanwhile; it waits
  // for again() or queueIfReady().
  bool onStored(std::uint32_t chunk, std::uint64_t attempt, bool still_wanted);
  // The copy came to nothing: the chunk waits for again() or queueIfReady().
  void onCut(std::uint32_t chunk);
  bool allDone() const { return done_ == tasks_.size(); }

 private:
  enum class Phase {
    kIdle,     // waits for its payload
    kQueued,   // to be sent (not before `not_before`)
    kFlying,   // sent, not yet known to have been received
    kParked,   // received by the server, answer outstanding
    kStoring,  // the answer is being copied
    kDone,
  };
  struct Task {
    Phase phase = Phase::kIdle;
    bool ready = false;
    bool again = false;  // wanted anew, after the copy in progress
    std::uint64_t attempt = 0;
    TimePoint not_before{};
  };
  // What a step's many events ask for without a look at all chunks.
  struct Server {
    std::size_t held = 0;  // chunks
    std::size_t flying = 0;
    std::size_t window = 0;
    bool receipts = false;
    std::set<std::uint32_t> open;    // its chunks that are neither kIdle nor kDone
    std::set<std::uint32_t> queued;  // its chunks that are kQueued
  };
  static bool isOpen(Phase phase) { return phase != Phase::kIdle && phase != Phase::kDone; }
  Server& holder(std::uint32_t chunk) {
    return servers_[static_cast<std::size_t>(ps_of_chunk_[chunk])];
  }
  // The only one to change a phase; `not_before`, of a chunk that is queued.
  void become(std::uint32_t chunk, Phase phase, TimePoint not_before = {});
  void list(std::uint32_t chunk);
  void unlist(std::uint32_t chunk);
  // By ps: with `until_answer` those of its chunks may be sent that are before this place.
  std::vector<std::size_t> abreast(std::size_t servers) const;
  void takeOf(Server& server, std::size_t limit, TimePoint now, std::vector<Sent>& sends);

  std::vector<int> ps_of_chunk_;
  std::vector<std::size_t> place_;  // by chunk id: among those of its server
  const std::size_t window_;
  const bool until_answer_;
  const std::size_t first_;
  std::vector<Task> tasks_;
  std::vector<Server> servers_;     // by ps
  std::multiset<TimePoint> later_;  // when those that are queued for later may be sent
  std::size_t done_ = 0;
  std::uint64_t next_attempt_ = 1;
};

}  // namespace trainyard::runtime::ps
