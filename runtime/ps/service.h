// The parameter server's end of its lanes: requests to the shard, the shard's answers back to who
// asked.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/core/clock.h"
#include "base/core/work_thread.h"
#include "base/metrics/bucket_counts.h"
#include "base/metrics/catalogue.h"
#include "base/process/unique_fd.h"
#include "runtime/lanes/lane_server.h"
#include "runtime/ps/chunk_body.h"
#include "runtime/ps/payload.h"
#include "runtime/ps/shard.h"
#include "runtime/ps/shared_peers.h"
#include "runtime/ps/shared_pool.h"
#include "runtime/ps/traffic.h"
#include "runtime/ps/wire.h"

namespace trainyard::runtime::ps {

struct PsServiceOptions {
  lanes::LaneSecrets secrets;
  lanes::End self;
  int lanes = 1;                             // data threads
  std::size_t max_body = 0;                  // bytes of the longest chunk
  ElementType wire = ElementType::kFloat32;  // of workers' bodies, both ways
};
// For the shard of a server or keeper; 0 lanes: as many as its cores are good for.
PsServiceOptions serviceOptions(lanes::LaneSecrets secrets, lanes::End self,
                                const Placement& placement, int lanes = 0);

// Thread-safe. Chunks are summed and updated on the data threads.
class PsService {
 public:
  // `progressed` is called after answers were given, from data threads: a snapshot may be ready.
  // `urgent` when the coordinator should hear from the shard at once, from any thread.
  PsService(
      PsServiceOptions options, Shard& shard, const Clock& clock, std::function<void()> progressed,
      std::function<void()> urgent = [] {});
  ~PsService();  // closes

  // Before anything else. Errors as of LaneServer::start().
  Status start();
  // A connection that has come to the task's port.
  void take(UniqueFd socket) { server_->take(std::move(socket)); }
  // Ends all connections; nothing of the shard is called any more by them.
  void close();

  // Who sends the steps of this server's chunks to their replicas; before any request comes.
  void setReplicator(std::function<void(std::vector<ReplicaUpdate>)> replicate) {
    replicate_ = std::move(replicate);
  }
  // A replica has taken a step of one of these chunks.
  void replicated(const v1::ChunkRequestHeader& update);
  // Sends the answers to those who are still there.
  void deliver(std::vector<ChunkAnswer> answers);
  // Updates and answers all chunks that wait for nothing but that (see Shard::updateNext). Two
  // threads that call it share the work.
  void update();
  const Traffic& traffic() const { return traffic_; }
  const Traffic& replicaTraffic() const { return replica_traffic_; }
  std::uint64_t requests() const { return requests_.load(); }
  // Of these, whose weights the caller reads in this process's memory.
  std::uint64_t sharedRequests() const { return shared_requests_.load(); }
  // What other processes of this machine may read of the shard's chunks; made when it is first
  // asked for. Errors as of SharedPool::create.
  StatusOr<std::shared_ptr<SharedPool>> memory();
  // Of requests that arrived in full, to their answer.
  BucketCounts requestTimes() const {
    std::lock_guard lock(times_mutex_);
    return times_;
  }

 private:
  class Session;
  // A request that is not answered yet.
  struct Call {
    Session* session = nullptr;
    std::uint64_t number = 0;
    std::uint32_t peer = 0;  // index of who asks: a worker, or for a replica a server
    bool of_replica = false;
    bool reads_shared = false;
    TimePoint arrived{};
  };
  // What one data thread has.
  struct Lane {
    explicit Lane(ElementType wire) : weights(wire, bodies) {}
    std::unordered_map<CallId, Call> calls;
    CallId next = 1;
    struct Asked {
      const Session* session = nullptr;
      std::uint64_t number = 0;
    };
    std::unordered_map<CallId, Asked> gives;  // that gives_ has
    BodyPool bodies;
    WeightsBodies weights;
  };
  void handle(Session& session, std::uint64_t number, const v1::ChunkRequestHeader& header,
              std::unique_ptr<GradientPayload> payload);
  void handleRows(Session& session, std::uint64_t number, const v1::ChunkRequestHeader& header,
                  std::span<const std::byte> body);
  bool speaks(const Session& session, std::uint64_t number,
              const v1::ChunkRequestHeader& header) const;
  CallId enter(const Session& session, const v1::ChunkRequestHeader& header, Call call,
               std::size_t bytes);
  void settle(const Session& session, const v1::ChunkRequestHeader& header, std::uint64_t number,
              CallId id, std::vector<ChunkAnswer> answers);
  void give(const Session& session, std::uint64_t number, const v1::FetchChunkRequest& request);
  void giveLater(const Session& session, std::uint64_t number, v1::FetchChunkRequest request);
  static void sendGiven(const Session& session, std::uint64_t number, StatusOr<ChunkFrame> frame);
  StatusOr<ChunkFrame> given(const v1::FetchChunkRequest& request) const;
  void answer(int lane, const ChunkAnswer& answer);
  void forgetWeights(int lane);
  void send(Lane& lane, const Call& call, const ChunkAnswer& answer);
  std::optional<v1::SharedPlace> placeOf(std::span<const std::byte> bytes);
  void closed(const Session& session);
  int laneOf(CallId call) const { return static_cast<int>(call % lanes_.size()); }
  void forward();
  ElementType wireOf(const v1::ChunkRequestHeader& header) const;
  std::string judge(const lanes::Intro& intro) const;

  const PsServiceOptions options_;
  Shard& shard_;
  const Clock& clock_;
  const std::function<void()> progressed_;
  const std::function<void()> urgent_;
  SharedFiles files_;
  std::mutex memory_mutex_;
  std::shared_ptr<SharedPool> memory_;  // null: nobody has asked
  Traffic traffic_;
  Traffic replica_traffic_{v1::ROLE_PS};
  std::function<void(std::vector<ReplicaUpdate>)> replicate_;
  std::atomic<std::uint64_t> requests_{0};
  std::atomic<std::uint64_t> shared_requests_{0};
  mutable std::mutex times_mutex_;
  BucketCounts times_{metric("trainyard_ps_request_duration_seconds").buckets};

  std::vector<std::unique_ptr<Lane>> lanes_;  // each is its thread's
  std::unique_ptr<lanes::LaneServer> server_;
  std::unique_ptr<WorkThread> gives_;  // parts to who copies them meanwhile; null: no tables
};

}  // namespace trainyard::runtime::ps
