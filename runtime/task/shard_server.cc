#include "runtime/task/shard_server.h"

#include <utility>

namespace trainyard::runtime {

StatusOr<ps::DataAccess> dataAccess(const TaskOptions& options, lanes::End self) {
  ps::DataAccess access{{options.keys.data}, std::move(self)};
  TY_ASSIGN_OR_RETURN(access.secrets.tls, dataEncryption(options));
  return access;
}

StatusOr<std::unique_ptr<TaskServer>> serveShard(const TaskOptions& options,
                                                 const std::vector<grpc::Service*>& control,
                                                 ps::PsService& data, UniqueFd listener) {
  return TaskServer::start(
      taskServerOptions(options), control,
      [&data](UniqueFd socket) { data.take(std::move(socket)); }, std::move(listener));
}

}  // namespace trainyard::runtime
