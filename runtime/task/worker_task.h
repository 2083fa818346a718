// The process of one worker with a model of ours: what it computes, and its membership of the job.
#pragma once

#include <memory>

#include "base/core/status.h"
#include "runtime/task/options.h"
#include "runtime/task/worker_computing.h"
#include "runtime/task/worker_member.h"

namespace trainyard::runtime {

class WorkerTask {
 public:
  // Opens the data and builds the model. Errors: bad input names its field or file.
  static StatusOr<std::unique_ptr<WorkerTask>> start(const TaskOptions& options);
  // Until the job is over. OK: done or stopped; FAILED_PRECONDITION: the job failed.
  Status run();

 private:
  WorkerTask() = default;

  std::unique_ptr<WorkerComputing> computing_;
  std::unique_ptr<WorkerMember> member_;  // first to go: it writes the weights, and asks for totals
};

}  // namespace trainyard::runtime
