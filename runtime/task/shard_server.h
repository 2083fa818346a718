// How a shard is reached: control encrypted always, data (push, pull, replicas, whole chunks) by
// network.encryption.
#pragma once

#include <memory>
#include <vector>

#include "base/core/status.h"
#include "base/rpc/task_server.h"
#include "runtime/ps/chunk_client.h"
#include "runtime/ps/service.h"
#include "runtime/task/options.h"

namespace trainyard::runtime {

// What this task proves itself by where it pushes, pulls, replicates or fetches; `self` as lanes
// know it. INTERNAL: the job's certificates cannot be read.
StatusOr<ps::DataAccess> dataAccess(const TaskOptions& options, lanes::End self);

// gRPC for control and lanes for data at the task's port, by `listener` where there is one. Both
// must outlive the server. Errors as of TaskServer::start.
StatusOr<std::unique_ptr<TaskServer>> serveShard(const TaskOptions& options,
                                                 const std::vector<grpc::Service*>& control,
                                                 ps::PsService& data, UniqueFd listener = {});

}  // namespace trainyard::runtime
