// What a server holds, given as a whole to those who have proved themselves.
#pragma once

#include <string>

#include "runtime/ps/shard.h"
#include "trainyard/v1/parameter_server.grpc.pb.h"

namespace trainyard::runtime::ps {

// Thread-safe. Must outlive its server, which must know its clients (checkPeer()).
class TransferService final : public v1::ShardTransfer::CallbackService {
 public:
  // `id` and `self`: whose shard it is.
  TransferService(Shard& shard, v1::TaskId id, v1::Incarnation self, std::string job_uid);

  grpc::ServerUnaryReactor* FetchChunk(grpc::CallbackServerContext* context,
                                       const v1::FetchChunkRequest* request,
                                       v1::ChunkContents* reply) override;
  grpc::ServerUnaryReactor* GetShard(grpc::CallbackServerContext* context,
                                     const v1::GetShardRequest* request,
                                     v1::ShardTable* reply) override;

 private:
  grpc::Status give(const v1::FetchChunkRequest& request, v1::ChunkContents& reply);

  Shard& shard_;
  const v1::TaskId id_;
  const v1::Incarnation self_;
  const std::string job_uid_;
};

}  // namespace trainyard::runtime::ps
