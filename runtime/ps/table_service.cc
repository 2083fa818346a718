#include "runtime/ps/table_service.h"

#include <utility>

#include "base/rpc/secure_channel.h"

namespace trainyard::runtime::ps {

TableService::TableService(const Shard& shard, v1::TaskId id, v1::Incarnation self)
    : shard_(shard), id_(std::move(id)), self_(std::move(self)) {}

grpc::ServerUnaryReactor* TableService::GetShard(grpc::CallbackServerContext* context,
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
