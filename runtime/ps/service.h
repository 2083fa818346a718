// The parameter server's gRPC rim: requests to the shard, the shard's answers back to their calls.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/core/clock.h"
#include "base/metrics/bucket_counts.h"
#include "base/metrics/catalogue.h"
#include "base/rpc/channel.h"
#include "runtime/ps/shard.h"
#include "runtime/ps/shared_slots.h"
#include "runtime/ps/traffic.h"
#include "trainyard/v1/parameter_server.grpc.pb.h"

namespace trainyard::runtime::ps {

using PsServiceBase = v1::ParameterServer::WithRawCallbackMethod_PushPull<
    v1::ParameterServer::WithCallbackMethod_ShareMemory<v1::ParameterServer::Service>>;

// Of a server with PsService. A worker may have a call for each chunk under way that is answered
// only when the last of them is in (clipping), and as many of the epoch before that are ending; of
// all workers these may be most of the memory that the process may have.
ServerLimits serverLimits(const Placement& placement);

// Thread-safe. Must outlive its server.
class PsService final : public PsServiceBase {
 public:
  // Calls must carry `data_key` (RuntimeKeys::data). `progressed` is called after answers were
  // given, from gRPC's threads: a snapshot may be ready. `urgent` when the coordinator should hear
  // from the shard at once, also from gRPC's threads.
  PsService(
      Shard& shard, std::string data_key, const Clock& clock, std::function<void()> progressed,
      std::function<void()> urgent = [] {});

  grpc::ServerUnaryReactor* PushPull(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* ShareMemory(grpc::CallbackServerContext* context,
                                        const v1::ShareMemoryRequest* request,
                                        v1::ShareMemoryReply* reply) override;

  // Who sends the steps of this server's chunks to their replicas; before any request comes.
  void setReplicator(std::function<void(std::vector<ReplicaUpdate>)> replicate) {
    replicate_ = std::move(replicate);
  }
  // A replica has taken a step of one of these chunks.
  void replicated(const v1::ChunkRequestHeader& update);
  // Finishes the calls that are answered.
  void deliver(std::vector<ChunkAnswer> answers);
  // Updates and answers all chunks that wait for nothing but that (see Shard::updateNext). Two
  // threads that call it share the work.
  void update();
  const Traffic& traffic() const { return traffic_; }
  const Traffic& replicaTraffic() const { return replica_traffic_; }
  std::uint64_t requests() const { return requests_.load(); }
  // Of these, answered with weights in shared memory.
  std::uint64_t sharedRequests() const { return shared_requests_.load(); }
  // Of requests that arrived in full, to their answer.
  BucketCounts requestTimes() const {
    std::lock_guard lock(times_mutex_);
    return times_;
  }

 private:
  class Call;
  void handle(Call* call, grpc::ByteBuffer request);
  void forward();
  std::string takeShared(Call* call, const v1::SharedPlace& place,
                         std::unique_ptr<WirePayload>& payload);
  // The call, out of the table: the taker finishes it. Null when it is answered already.
  Call* take(CallId id);
  void transmitted(std::uint32_t worker, std::uint64_t bytes);

  Shard& shard_;
  const std::string data_key_;
  const Clock& clock_;
  const std::function<void()> progressed_;
  const std::function<void()> urgent_;
  SharedPeers shared_;
  Traffic traffic_;
  Traffic replica_traffic_{v1::ROLE_PS};
  std::function<void(std::vector<ReplicaUpdate>)> replicate_;
  std::atomic<std::uint64_t> requests_{0};
  std::atomic<std::uint64_t> shared_requests_{0};
  mutable std::mutex times_mutex_;
  BucketCounts times_{metric("trainyard_ps_request_duration_seconds").buckets};

  std::mutex mutex_;
  CallId next_id_ = 1;
  std::unordered_map<CallId, Call*> calls_;  // not yet answered
};

}  // namespace trainyard::runtime::ps
