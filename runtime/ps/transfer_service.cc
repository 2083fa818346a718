#include "runtime/ps/transfer_service.h"

#include <utility>

#include "base/core/failpoint.h"
#include "base/rpc/secure_channel.h"
#include "base/rpc/status_map.h"

namespace trainyard::runtime::ps {

TransferService::TransferService(Shard& shard, v1::TaskId id, v1::Incarnation self,
                                 std::string job_uid)
    : shard_(shard), id_(std::move(id)), self_(std::move(self)), job_uid_(std::move(job_uid)) {}

grpc::ServerUnaryReactor* TransferService::FetchChunk(grpc::CallbackServerContext* context,
                                                      const v1::FetchChunkRequest* request,
                                                      v1::ChunkContents* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const grpc::Status known = checkPeer(*context);
  reactor->Finish(known.ok() ? give(*request, *reply) : known);
  return reactor;
}

grpc::Status TransferService::give(const v1::FetchChunkRequest& request, v1::ChunkContents& reply) {
  const bool meant = request.job_uid() == job_uid_ &&
                     request.server().created() == self_.created() &&
                     request.server().start() == self_.start();
  if (!meant) {
    return {grpc::StatusCode::FAILED_PRECONDITION,
            "meant for another job or incarnation of this server"};
  }
  hitFailpoint("ps.give", request.epoch());
  StatusOr<v1::ChunkContents> contents = shard_.give(
      request.epoch(), request.chunk(), request.has_known_version() ? request.known_version() : -1);
  if (contents.ok()) reply = *std::move(contents);
  return toGrpc(contents.status());
}

grpc::ServerUnaryReactor* TransferService::GetShard(grpc::CallbackServerContext* context,
                                                    const v1::GetShardRequest*,
                                                    v1::ShardTable* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const grpc::Status known = checkPeer(*context);
  if (known.ok()) {
    *reply->mutable_id() = id_;
    *reply->mutable_incarnation() = self_;
    shard_.fillTable(*reply);
  }
  reactor->Finish(known);
  return reactor;
}

}  // namespace trainyard::runtime::ps
