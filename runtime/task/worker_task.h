// The process of one worker: data, model, step loop, its link to the coordinator; the chief (index
// 0) also writes the events and metrics of the job, and keeps the replicas of an only server. With
// strategy AllReduce it holds all of the state, and index 0 is also the coordinator and writes
// checkpoints.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/status.h"
#include "base/rpc/task_server.h"
#include "runtime/coordinator/member_link.h"
#include "runtime/coordinator/service.h"
#include "runtime/data/dataset.h"
#include "runtime/events/timeline.h"
#include "runtime/model/device.h"
#include "runtime/model/model.h"
#include "runtime/optimizer/optimizer.h"
#include "runtime/placement/placement.h"
#include "runtime/task/agent_link.h"
#include "runtime/task/options.h"
#include "runtime/task/replica_keeper.h"
#include "runtime/task/run_log.h"
#include "runtime/train/member_synchronizer.h"
#include "runtime/train/trainer.h"

namespace trainyard::runtime {

class WorkerTask final : TrainObserver {
 public:
  // Opens the data and builds the model. Errors: bad input names its field or file.
  static StatusOr<std::unique_ptr<WorkerTask>> start(const TaskOptions& options);
  ~WorkerTask() override;
  // Until the job is over. OK: done or stopped; FAILED_PRECONDITION: the job failed.
  Status run();

 private:
  explicit WorkerTask(const TaskOptions& options);
  Status build();
  // training.device, on this machine.
  StatusOr<ComputeDevice> computeDevice() const;
  Status checkFit() const;
  // worker_build.cc: which synchronizer the job's strategy means.
  Status place();
  Status synchronizeOverServers();
  void startKeeper();
  Status synchronizeInRing(const ComputeDevice& device);
  Status hostCoordinator();
  std::vector<std::span<float>> weights();
  void poke();
  Status restoreModelBuffers();
  void saveModelBuffers(std::int64_t step);
  std::optional<std::int64_t> buffersDue(std::int64_t version);
  void saveLastBuffers(const TrainEnd& end);
  Status onStep(const StepRecord& record) override;
  void onSpan(std::string_view name, std::int64_t step, TimePoint start, TimePoint end) override;
  void tellCompute(const ComputeDevice& device) const;
  void openTimeline();
  void awaitOthers(const Status& end);
  v1::MemberReport report();
  v1::RuntimeReport runtimeReport();
  v1::Measurements measurements() const;
  void onView(const v1::View& view);
  void onDirective(const v1::RuntimeDirective& directive);

  TaskOptions options_;
  std::string digest_;
  ModelLayout layout_;
  Placement placement_;
  std::unique_ptr<Optimizer> optimizer_;  // AllReduce
  DataSplits data_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<RunLog> log_;
  std::unique_ptr<Timeline> timeline_;  // null: not asked for
  std::unique_ptr<MemberSynchronizer> synchronizer_;
  std::unique_ptr<Trainer> trainer_;
  bool skips_versions_ = false;      // not every version passes through the chief
  std::int64_t saved_buffers_ = -1;  // step of those written last by this process

  // The job was over before this process started.
  std::optional<v1::Evaluation> finished_;

  std::mutex mutex_;
  v1::Membership membership_;
  v1::View view_;

  std::unique_ptr<CoordinatorService> coordinator_;  // AllReduce, index 0
  std::unique_ptr<TaskServer> server_;

  std::unique_ptr<ReplicaKeeper> keeper_;  // with parameter servers, index 0

  std::unique_ptr<AgentLink> agent_;
  std::unique_ptr<MemberLink> link_;
};

}  // namespace trainyard::runtime
