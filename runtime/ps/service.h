// The parameter server's gRPC rim: requests to the shard, the shard's answers back to their calls.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/core/clock.h"
#include "runtime/ps/shard.h"
#include "runtime/ps/traffic.h"
#include "trainyard/v1/parameter_server.grpc.pb.h"

namespace trainyard::runtime::ps {

using PsServiceBase = v1::ParameterServer::WithRawCallbackMethod_PushPull<
    v1::ParameterServer::WithCallbackMethod_GetShard<v1::ParameterServer::Service>>;

// Thread-safe. Must outlive its server.
class PsService final : public PsServiceBase {
 public:
  // `progressed` is called after answers were given, from gRPC's threads: a snapshot may be ready.
  // `urgent` when the coordinator should hear from the shard at once, also from gRPC's threads.
  PsService(
      Shard& shard, v1::TaskId id, v1::Incarnation self, std::string token, const Clock& clock,
      std::function<void()> progressed, std::function<void()> urgent = [] {});

  grpc::ServerUnaryReactor* PushPull(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* GetShard(grpc::CallbackServerContext* context,
                                     const v1::GetShardRequest* request,
                                     v1::ShardTable* reply) override;

  // Finishes the calls that are answered.
  void deliver(std::vector<ChunkAnswer> answers);
  // Updates and answers all chunks that wait for nothing but that (see Shard::updateNext). Two
  // threads that call it share the work.
  void update();
  const Traffic& traffic() const { return traffic_; }
  std::uint64_t requests() const { return requests_.load(); }

 private:
  class Call;
  void handle(Call* call, const grpc::ByteBuffer& request);
  // The call, out of the table: the taker finishes it. Null when it is answered already.
  Call* take(CallId id);
  void transmitted(std::uint32_t worker, std::uint64_t bytes);

  Shard& shard_;
  const v1::TaskId id_;
  const v1::Incarnation self_;
  const std::string token_;
  const Clock& clock_;
  const std::function<void()> progressed_;
  const std::function<void()> urgent_;
  Traffic traffic_;
  std::atomic<std::uint64_t> requests_{0};

  std::mutex mutex_;
  CallId next_id_ = 1;
  std::unordered_map<CallId, Call*> calls_;  // not yet answered
};

}  // namespace trainyard::runtime::ps
