// One run from its start to its result: the operator's controller over a cluster of local
// processes, and what the user sees of it.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/core/clock.h"
#include "base/core/log.h"
#include "base/core/status.h"
#include "base/process/signals.h"
#include "cli/jobs/edited_job.h"
#include "cli/jobs/task_logs.h"
#include "cli/live/monitor.h"
#include "cli/run/directory.h"
#include "cli/run/display.h"
#include "cli/run/environment.h"
#include "cli/run/result.h"
#include "operator/controller.h"
#include "operator/local/local_cluster.h"
#include "operator/progress/grpc_progress.h"

namespace trainyard::cli {

struct SessionOptions {
  std::string agent_path;
  std::string runtime_path;
  std::string shown_dir;     // the directory as the user gave it
  bool show_output = false;  // the lines of the tasks' programs are shown as they come
  LogFormat log_format = LogFormat::kText;
  control::TaskPlaces places;
  bool reaps_orphans = false;  // as of LocalClusterOptions
};

// Lifecycle: start(), then waitForEnd(), then finish(); the destructor leaves no process behind in
// any case. Used from one thread, the one that created `signals`.
class Session {
 public:
  Session(SessionOptions options, OpenedRun run, const Clock& clock, SignalWaiter& signals,
          Display& display);
  ~Session();

  // Starts cluster and controller. Fails as these do; nothing runs then.
  Status start();
  // Returns when the job has ended or was stopped, from here or from elsewhere (suspended or
  // deleted in the record), or when its directory is gone. The first SIGINT or SIGTERM makes the
  // job checkpoint and stop, within runPolicy.stopSeconds; a second one, or the end of that time,
  // kills its processes.
  void waitForEnd();
  // Ends all processes and writes result.json, environment.json and report.html; what cannot be
  // written is logged.
  RunResult finish();

  bool interrupted() const { return interrupt_deadline_.has_value(); }

 private:
  bool step();  // true when the run is over
  void waitForNews();
  void look();
  void tellWish();
  bool isOver();
  Duration endBound() const;  // of the tasks of a job that has ended
  void takeSignal();
  void sampleTraffic(TimePoint now);
  void listMetrics();
  void showOutput(bool last);
  void settle();
  void takeLastWords();
  void stopAll();
  // False: there is no checkpoint.
  bool takeStepsFromDisk(RunResult* result) const;
  RunResult makeResult() const;
  void writeFiles(const RunResult& result);
  bool deleted() const;  // from elsewhere

  const SessionOptions options_;
  OpenedRun run_;
  const Clock& clock_;
  SignalWaiter& signals_;
  Display& display_;
  const bool foreign_;  // the tasks run programs of the user's own
  const control::JobKey key_;
  const TimePoint started_;
  const UnixMillis started_unix_ms_;

  std::unique_ptr<control::LocalCluster> cluster_;
  std::unique_ptr<control::GrpcProgress> progress_;
  std::unique_ptr<control::Controller> controller_;

  EditedJob edits_;
  RunView view_;
  std::map<control::TaskKey, std::uint32_t> lives_;  // of tasks ever seen, the newest of each
  RunMonitor monitor_;
  std::optional<TaskLogs> output_;
  std::optional<TimePoint> interrupt_deadline_;
  std::optional<TimePoint> end_deadline_;  // the job has ended; its tasks end until then
  std::optional<TimePoint> gone_since_;    // the record is not there any more
  bool told_suspend_ = false;
  bool killed_ = false;
  TimePoint next_sample_;
  std::string listed_metrics_;  // what prometheus.json holds
};

}  // namespace trainyard::cli
