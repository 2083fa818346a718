#include "runtime/task/replica_keeper.h"

#include <utility>

#include "runtime/placement/moves.h"
#include "runtime/task/shard_server.h"

namespace trainyard::runtime {

StatusOr<std::unique_ptr<ReplicaKeeper>> ReplicaKeeper::start(const TaskOptions& options,
                                                              const ModelLayout& layout,
                                                              const Placement& placement,
                                                              const std::function<void()>& poke) {
  std::unique_ptr<ReplicaKeeper> keeper(new ReplicaKeeper);
  TY_ASSIGN_OR_RETURN(keeper->host_,
                      ShardHost::make(options, kWorkerKeeper, layout, placement, poke));
  TY_ASSIGN_OR_RETURN(keeper->server_,
                      serveShard(options, {&keeper->host_->tables()}, keeper->host_->service()));
  keeper->thread_ = std::thread([self = keeper.get()] { self->run(); });
  return keeper;
}

void ReplicaKeeper::run() {
  while (host_->await()) host_->work();
}

ReplicaKeeper::~ReplicaKeeper() {
  if (host_ == nullptr) return;
  host_->end();
  if (thread_.joinable()) thread_.join();
  host_->close();
  server_.reset();
}

void ReplicaKeeper::fillReport(v1::MemberReport& report) const {
  report.set_keeper_port(static_cast<std::uint32_t>(server_->port()));
  host_->withMachine([&](const ps::PsMachine& machine) { machine.fillKept(report); });
}

}  // namespace trainyard::runtime
