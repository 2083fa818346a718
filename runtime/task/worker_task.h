// The process of one worker: data, model, step loop, its link to the coordinator; the chief (index
// 0) also writes the events and metrics of the job.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/core/status.h"
#include "runtime/coordinator/member_link.h"
#include "runtime/data/dataset.h"
#include "runtime/model/model.h"
#include "runtime/placement/placement.h"
#include "runtime/ps/ps_synchronizer.h"
#include "runtime/task/agent_link.h"
#include "runtime/task/options.h"
#include "runtime/task/run_log.h"
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
  Status restoreModelBuffers();
  void saveModelBuffers(std::int64_t step);
  Status onStep(const StepRecord& record) override;
  v1::MemberReport report();
  v1::RuntimeReport runtimeReport();
  void onView(const v1::View& view);
  void onDirective(const v1::RuntimeDirective& directive);

  TaskOptions options_;
  std::string digest_;
  Placement placement_;
  DataSplits data_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<RunLog> log_;
  std::unique_ptr<ps::PsSynchronizer> synchronizer_;
  std::unique_ptr<Trainer> trainer_;

  // The job was over before this process started.
  std::optional<v1::Evaluation> finished_;

  std::mutex mutex_;
  v1::Membership membership_;
  v1::View view_;

  std::unique_ptr<AgentLink> agent_;
  std::unique_ptr<MemberLink> link_;
};

}  // namespace trainyard::runtime
