// The process of one parameter server: its shard behind a socket, its link to the coordinator, its
// checkpoint files; with index 0 also the coordinator.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "base/core/status.h"
#include "base/rpc/task_server.h"
#include "runtime/coordinator/member_link.h"
#include "runtime/coordinator/service.h"
#include "runtime/files/file_service.h"
#include "runtime/placement/placement.h"
#include "runtime/program/declared_model.h"
#include "runtime/task/agent_link.h"
#include "runtime/task/options.h"
#include "runtime/task/shard_host.h"
#include "runtime/train/model_layout.h"

namespace trainyard::runtime {

class PsTask {
 public:
  // Reads checkpoints and starts to listen. Errors: bad input names its field; UNAVAILABLE when the
  // port is taken.
  static StatusOr<std::unique_ptr<PsTask>> start(const TaskOptions& options);
  ~PsTask();

  // Until the job is over or requestEnd(). OK: done or stopped; FAILED_PRECONDITION: the job
  // failed.
  Status run();
  // From a signal watcher: leave now, without a checkpoint.
  void requestEnd();

 private:
  explicit PsTask(const TaskOptions& options);
  StatusOr<ModelLayout> layout();
  StatusOr<DeclaredModel> declaredModel();
  Status build();
  Status listen();
  v1::MemberReport report();
  v1::RuntimeReport runtimeReport();
  v1::Measurements measurements() const;
  void onView(const v1::View& view);
  void onDirective(const v1::RuntimeDirective& directive);
  Status outcome() const;

  TaskOptions options_;
  ModelLayout model_;
  Placement placement_;  // the grid, and where the job's chunks begin
  std::string digest_;
  std::unique_ptr<ShardHost> host_;
  std::unique_ptr<CoordinatorService> coordinator_;  // ps-0 only
  std::unique_ptr<FileService> files_;               // likewise, where others have no disk
  std::unique_ptr<TaskServer> server_;

  std::mutex mutex_;
  v1::Membership membership_;
  bool was_active_ = false;  // has served an epoch; the agent link's

  std::unique_ptr<AgentLink> declaring_;  // until it runs, where the model is a program's own
  std::unique_ptr<AgentLink> agent_;
  std::unique_ptr<MemberLink> link_;  // made before the server: requests may poke it
};

}  // namespace trainyard::runtime
