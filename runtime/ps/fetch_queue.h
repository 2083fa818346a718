// Which chunks an epoch still needs from other servers: what to ask for now, what to ask for again,
// when to give up. No sockets, no clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "base/core/clock.h"

namespace trainyard::runtime::ps {

struct FetchedChunk {
  std::uint32_t chunk = 0;
  int from = 0;             // server, one of the epoch's `sources`
  std::int64_t known = -1;  // the version that is here; the same is not sent again
  // Of a part that is copied while it takes updates: FetchChunkRequest.follows.
  std::optional<std::uint64_t> follows = std::nullopt;
};

struct FetchLimits {
  // Asked for and not there yet, of all servers together.
  std::size_t window = 16;
  // After a server has failed to give a chunk, before it is asked for anything again.
  Duration pause = std::chrono::milliseconds(50);
  // A server that has given nothing for so long, though it was asked, is silent.
  Duration call_limit = std::chrono::seconds(5);
  // Without success of any chunk; longer than the coordinator takes to end the epoch when a server
  // is gone.
  Duration patience = std::chrono::seconds(60);
};

// Chunks are named by their place in the list. Not thread-safe.
class FetchQueue {
 public:
  FetchQueue(const std::vector<FetchedChunk>& chunks, FetchLimits limits, TimePoint now);

  // What to ask for now: of each server in the order of the list, of the servers as many of each as
  // there are. Of each, onArrived() or onFailed() follows.
  std::vector<std::size_t> take(TimePoint now);
  void onArrived(std::size_t at, TimePoint now);
  void onFailed(std::size_t at, TimePoint now);
  bool done() const { return left_ == 0; }

  // A server that does not answer. What it was asked for is not asked for again before onFailed().
  std::optional<int> silent(TimePoint now) const;
  // Nothing has come for longer than one is patient.
  bool late(TimePoint now) const { return now > last_success_ + limits_.patience; }

 private:
  struct Server {
    std::deque<std::size_t> waiting;
    std::size_t asked = 0;
    TimePoint not_before{};
    TimePoint heard{};  // something has come from it last; or it was asked, after it owed nothing
  };
  Server* next(TimePoint now);
  Server& answered(std::size_t at);

  const FetchLimits limits_;
  std::vector<int> from_;  // by place
  std::map<int, Server> servers_;
  std::vector<bool> asked_;  // by place: not answered yet
  std::size_t under_way_ = 0;
  std::size_t left_;
  TimePoint last_success_;
};

}  // namespace trainyard::runtime::ps
