// What a server holds, by names and sizes, for those who have proved themselves.
#pragma once

#include "runtime/ps/shard.h"
#include "trainyard/v1/parameter_server.grpc.pb.h"

namespace trainyard::runtime::ps {

// Thread-safe. Must outlive its server, which must know its clients (checkPeer()).
class TableService final : public v1::ShardTables::CallbackService {
 public:
  // `id` and `self`: whose shard it is.
  TableService(const Shard& shard, v1::TaskId id, v1::Incarnation self);

  grpc::ServerUnaryReactor* GetShard(grpc::CallbackServerContext* context,
                                     const v1::GetShardRequest* request,
                                     v1::ShardTable* reply) override;

 private:
  const Shard& shard_;
  const v1::TaskId id_;
  const v1::Incarnation self_;
};

}  // namespace trainyard::runtime::ps
