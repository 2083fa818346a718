// How a shard is reached: control encrypted always, data (push, pull, replicas) by
// network.encryption.
#pragma once

#include <memory>
#include <vector>

#include "base/core/status.h"
#include "base/rpc/task_server.h"
#include "runtime/placement/placement.h"
#include "runtime/ps/chunk_client.h"
#include "runtime/task/options.h"

namespace trainyard::runtime {

// What this task's pushes, pulls and replicas carry.
ps::DataAccess dataAccess(const TaskOptions& options);

// Both services at the task's port. Encrypted, data are a service of the side that takes only
// clients who have proved who they are, and there is no other. Errors as of TaskServer::start.
StatusOr<std::unique_ptr<TaskServer>> serveShard(const TaskOptions& options,
                                                 const Placement& placement,
                                                 std::vector<grpc::Service*> control,
                                                 grpc::Service& data);

}  // namespace trainyard::runtime
