// What a person sees and does at a task that was started by hand: lines about how it goes, and
// Ctrl-C.
#pragma once

#include <string>

#include "base/core/clock.h"
#include "base/process/signals.h"
#include "runtime/task/options.h"

namespace trainyard::runtime {

// Takes the place of an agent (TaskOptions::local_agent): called twice a second with the task's own
// report, from one thread.
//
// Ctrl-C at ps-0 stops the whole job with a checkpoint. At a worker it ends that worker: the others
// wait for it to be started again. At another ps it is only said, for its part of the weights would
// be lost: the second one ends it. The second one ends every task at once.
class HandWatch {
 public:
  // SIGINT and SIGTERM are read from `signals`, which outlives this.
  HandWatch(const TaskOptions& options, SignalWaiter& signals, const Clock& clock)
      : id_(options.id), signals_(signals), clock_(clock) {}

  v1::RuntimeDirective onReport(const v1::RuntimeReport& report);
  // The process is to end now.
  bool leaves() const { return leaves_; }
  // Somebody asked to stop.
  bool interrupted() const { return asked_ > 0; }

 private:
  void takeSignal();
  void tell(const v1::RuntimeReport& report);

  const v1::TaskId id_;
  SignalWaiter& signals_;
  const Clock& clock_;
  int asked_ = 0;
  bool leaves_ = false;
  std::string state_;  // as last told
  TimePoint next_{};
};

}  // namespace trainyard::runtime
