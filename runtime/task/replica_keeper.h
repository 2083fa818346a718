// What the first worker keeps for an only parameter server: replicas of its chunks, so that the
// server's death loses no step. With several servers it keeps nothing.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "base/core/status.h"
#include "base/rpc/task_server.h"
#include "runtime/task/shard_host.h"

namespace trainyard::runtime {

// Thread-safe; has a thread of its own, which prepares epochs.
class ReplicaKeeper {
 public:
  // Listens at the task's port, where there is no other server. `layout` and `placement` must
  // outlive the keeper; `poke` as ShardHost's. Errors: the port is taken.
  static StatusOr<std::unique_ptr<ReplicaKeeper>> start(const TaskOptions& options,
                                                        const ModelLayout& layout,
                                                        const Placement& placement,
                                                        const std::function<void()>& poke);
  ~ReplicaKeeper();

  void onView(const v1::View& view) { host_->onView(view); }
  // Beside what the worker says of itself.
  void fillReport(v1::MemberReport& report) const;

 private:
  ReplicaKeeper() = default;
  void run();

  std::unique_ptr<ShardHost> host_;
  std::unique_ptr<TaskServer> server_;
  std::thread thread_;
};

}  // namespace trainyard::runtime
