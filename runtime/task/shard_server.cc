#include "runtime/task/shard_server.h"

#include "base/rpc/secure_channel.h"
#include "runtime/ps/service.h"

namespace trainyard::runtime {

ps::DataAccess dataAccess(const TaskOptions& options) {
  ps::DataAccess access{options.keys.data};
  if (encryptsData(options.job)) access.credentials = secureClient(options.keys.control);
  return access;
}

StatusOr<std::unique_ptr<TaskServer>> serveShard(const TaskOptions& options,
                                                 const Placement& placement,
                                                 std::vector<grpc::Service*> control,
                                                 grpc::Service& data) {
  TaskServerOptions listening = taskServerOptions(options);
  const bool encrypted = encryptsData(options.job);
  (encrypted ? listening.control_limits : listening.data_limits) = ps::serverLimits(placement);
  if (!encrypted) return TaskServer::start(listening, control, {&data});
  control.push_back(&data);
  return TaskServer::start(listening, control);
}

}  // namespace trainyard::runtime
