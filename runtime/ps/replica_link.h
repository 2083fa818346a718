// Sends the steps of a server's chunks to the servers that keep their replicas, until they have
// them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "runtime/ps/chunk_client.h"
#include "runtime/ps/chunk_moves.h"
#include "runtime/ps/shard.h"
#include "trainyard/v1/coordinator.pb.h"

namespace trainyard::runtime::ps {

// Thread-safe.
class ReplicaLink {
 public:
  struct Options {
    DataAccess access;
    std::uint32_t ps = 0;  // this server
    int grid = 1;          // see ChunkClient::Options
    // As of ChunkClient::Options: that of the shard, for a server on the same machine.
    std::function<StatusOr<std::shared_ptr<SharedPool>>()> memory = {};
    Duration call_limit = std::chrono::seconds(10);
    Duration retry_delay = std::chrono::milliseconds(50);
    Duration tell_delay = std::chrono::seconds(10);  // between two lines about what is refused
  };
  // A step has been taken by its replica; from the client's thread.
  using Replicated = std::function<void(const v1::ChunkRequestHeader& update)>;

  ReplicaLink(Options options, const Clock& clock, Replicated replicated);
  ~ReplicaLink();  // closes

  // From now on steps of this epoch go to the replicas' servers of the epoch; nothing is sent of an
  // earlier one any more.
  void start(const v1::EpochInfo& epoch);
  // Each of another chunk, or of a step that follows one that was confirmed.
  void send(std::vector<ReplicaUpdate> updates);
  // Sends again what did not arrive; to be called now and then.
  void tick();
  // Gives up what is under way and waits for the last call of `replicated`.
  void close();

 private:
  struct Pending {
    ReplicaUpdate update;
    std::uint64_t attempt = 0;
    bool under_way = false;
    TimePoint not_before{};
  };
  struct Ready {
    ReplicaUpdate update;
    std::uint64_t attempt = 0;
    int target = -1;
  };
  void onReply(const ChunkClient::Reply& reply);
  void tellRefused(const ReplicaUpdate& update, const v1::ChunkReplyHeader& header, TimePoint now);
  int targetOf(const ReplicaUpdate& update) const;
  Ready begin(Pending& pending);
  void transmit(const std::vector<Ready>& ready);

  const Options options_;
  const Clock& clock_;
  const Replicated replicated_;
  std::mutex mutex_;
  std::int64_t epoch_ = 0;
  ReplicaTargets targets_{v1::EpochInfo()};
  std::map<int, v1::Incarnation> incarnations_;  // of servers of the epoch
  std::uint64_t attempts_ = 0;
  TimePoint tell_not_before_{};
  std::map<std::uint32_t, Pending> pending_;  // by chunk
  ChunkClient client_;                        // last: its calls use the rest
};

}  // namespace trainyard::runtime::ps
