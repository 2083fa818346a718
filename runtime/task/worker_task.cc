#include "runtime/task/worker_task.h"

#include <utility>

namespace trainyard::runtime {

StatusOr<std::unique_ptr<WorkerTask>> WorkerTask::start(const TaskOptions& options) {
  std::unique_ptr<WorkerTask> task(new WorkerTask);
  TY_ASSIGN_OR_RETURN(task->computing_, WorkerComputing::make(options));
  TY_ASSIGN_OR_RETURN(WorkerModel model, task->computing_->model());
  TY_ASSIGN_OR_RETURN(task->member_, WorkerMember::make(options, std::move(model)));
  task->computing_->computeFor(*task->member_);
  return task;
}

Status WorkerTask::run() {
  member_->join([this] { return computing_->totals(); });
  return member_->leave(computing_->run().status());
}

}  // namespace trainyard::runtime
