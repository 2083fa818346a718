// Where the jobs are that the verbs look after: run directories of this machine, or a cluster. The
// verbs know no other difference.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/core/exit_code.h"
#include "base/core/status.h"
#include "cli/jobs/control.h"
#include "cli/jobs/job_view.h"
#include "cli/top/metrics_text.h"

namespace trainyard::cli {

struct JobList {
  std::vector<JobView> jobs;
  std::vector<Status> problems;  // of jobs that cannot be read
};

// What a deletion takes away, for the one who is asked.
struct Doomed {
  std::string name;   // as remove() knows it
  std::string id;     // exactly this job, not another of its name
  std::string shown;  // "runs/fashion"
  std::string goes;   // "its checkpoints and logs"
};

struct RemoveOptions {
  bool now = false;  // kill instead of letting end in order
  Waiting waiting;
};

struct Resumed {
  std::string text;  // for the user; "": all is said already
  int code = kExitOk;
};

struct LogRequest {
  std::string task;                  // "worker-0"; "": all
  std::optional<std::int64_t> tail;  // the last lines of each; nothing: all
  bool follow = false;
};
struct LogPrinter {
  // A line of a task's log, without its end.
  std::function<void(const std::string& task, const std::string& line)> line;
  // After some lines, before waiting for others; false: nobody reads them.
  std::function<bool()> flush;
};

// `job` is what the user wrote. Errors: INVALID_ARGUMENT or NOT_FOUND where there is no such job
// (what is near is named) or the wish does not fit it, FAILED_PRECONDITION where it does not fit
// its state, DEADLINE_EXCEEDED where waiting took too long and what was asked for goes on; else
// what went wrong. Functions that change something return what the user is told. Used from one
// thread.
class JobSource {
 public:
  virtual ~JobSource() = default;
  virtual std::string place() const = 0;  // "runs", "namespace default"
  virtual StatusOr<JobList> list() = 0;
  virtual StatusOr<JobView> read(const std::string& job) = 0;
  virtual StatusOr<JobDetails> describe(const std::string& job) = 0;
  virtual StatusOr<std::string> suspend(const std::string& job, const Waiting& waiting) = 0;
  virtual StatusOr<Resumed> resume(const std::string& job, const Waiting& waiting) = 0;
  virtual StatusOr<std::string> scale(const std::string& job, const Replicas& replicas,
                                      const Waiting& waiting) = 0;
  virtual StatusOr<Doomed> toRemove(const std::string& job) = 0;
  virtual StatusOr<std::string> remove(const Doomed& doomed, const RemoveOptions& options) = 0;
  // Of `job`, as read() gave it.
  virtual Status logs(const JobView& job, const LogRequest& request, const LogPrinter& print) = 0;
  // What the agents of its tasks show at /metrics; those that do not answer are missing. An error
  // only where none answers.
  virtual StatusOr<TaskPages> metrics(const JobView& job) = 0;
};

}  // namespace trainyard::cli
