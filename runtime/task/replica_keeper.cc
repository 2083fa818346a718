#include "runtime/task/replica_keeper.h"

#include <string>
#include <utility>

#include "base/rpc/channel.h"
#include "fmt/format.h"
#include "runtime/coordinator/names.h"
#include "runtime/placement/moves.h"

namespace trainyard::runtime {

StatusOr<std::unique_ptr<ReplicaKeeper>> ReplicaKeeper::start(const TaskOptions& options,
                                                              const ModelLayout& layout,
                                                              const Placement& placement,
                                                              const std::function<void()>& poke) {
  std::unique_ptr<ReplicaKeeper> keeper(new ReplicaKeeper);
  TY_ASSIGN_OR_RETURN(keeper->host_,
                      ShardHost::make(options, kWorkerKeeper, layout, placement, poke));
  grpc::ServerBuilder builder;
  applyServerDefaults(builder, ps::serverLimits(placement));
  const std::string address = fmt::format("{}:{}", options.bind, options.port);
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &keeper->port_);
  builder.RegisterService(&keeper->host_->service());
  TY_ASSIGN_OR_RETURN(keeper->server_,
                      startServer(builder, taskName(options.id.role(), options.id.index()), address,
                                  keeper->port_));
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
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::time_point{});
  server_.reset();
}

void ReplicaKeeper::fillReport(v1::MemberReport& report) const {
  report.set_ring_port(static_cast<std::uint32_t>(port_));
  host_->withMachine([&](const ps::PsMachine& machine) { machine.fillKept(report); });
}

}  // namespace trainyard::runtime
