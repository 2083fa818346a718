#include "cli/jobs/local_jobs.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/http/http_get.h"
#include "base/process/files.h"
#include "base/process/poll.h"
#include "cli/jobs/find_jobs.h"
#include "cli/jobs/patience.h"
#include "cli/jobs/task_logs.h"
#include "cli/run/detach.h"
#include "cli/run/directory.h"
#include "cli/top/collect_pages.h"
#include "fmt/format.h"
#include "operator/cluster/task_keys.h"
#include "operator/local/run_directory.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;

// How long a launcher may take to end a job that is deleted: its tasks have 10 s.
constexpr Duration kDeleteGrace = std::chrono::seconds(15);
constexpr Duration kMetricsPatience = std::chrono::seconds(2);
constexpr Duration kLookAtRun = std::chrono::milliseconds(200);

class LocalJobs : public JobSource {
 public:
  LocalJobs(std::string runs, bool named, LauncherOptions launcher, const Console& console)
      : runs_(std::move(runs)),
        named_(named),
        launcher_(std::move(launcher)),
        console_(console),
        clock_(*console.clock) {}

  std::string place() const override { return runs_; }
  StatusOr<JobList> list() override;
  StatusOr<JobView> read(const std::string& job) override {
    TY_ASSIGN_OR_RETURN(const fs::path dir, findJob(runs_, job));
    return readJob(dir);
  }
  StatusOr<JobDetails> describe(const std::string& job) override {
    TY_ASSIGN_OR_RETURN(const fs::path dir, findJob(runs_, job));
    return readDetails(dir);
  }
  StatusOr<std::string> suspend(const std::string& job, const Waiting& waiting) override {
    TY_ASSIGN_OR_RETURN(const fs::path dir, findJob(runs_, job));
    return suspendJob(*controlOf(dir, clock_), waiting, clock_);
  }
  StatusOr<Resumed> resume(const std::string& job, const Waiting& waiting) override;
  StatusOr<std::string> scale(const std::string& job, const Replicas& replicas,
                              const Waiting& waiting) override {
    TY_ASSIGN_OR_RETURN(const fs::path dir, findJob(runs_, job));
    return scaleJob(*controlOf(dir, clock_), replicas, waiting, clock_);
  }
  StatusOr<Doomed> toRemove(const std::string& job) override {
    TY_ASSIGN_OR_RETURN(const fs::path dir, findJob(runs_, job));
    return Doomed{dir.string(), "", dir.string(), "its checkpoints and logs"};
  }
  StatusOr<std::string> remove(const Doomed& doomed, const RemoveOptions& options) override {
    return deleteJob(doomed.name, options.now ? Duration::zero() : kDeleteGrace, clock_);
  }
  Status logs(const JobView& job, const LogRequest& request, const LogPrinter& print) override;
  StatusOr<TaskPages> metrics(const JobView& job) override;

 private:
  const std::string runs_;
  const bool named_;
  const LauncherOptions launcher_;
  const Console console_;
  const Clock& clock_;
};

StatusOr<JobList> LocalJobs::list() {
  std::error_code error;
  if (named_ && !fs::is_directory(runs_, error)) return invalidInput(runs_, "no such directory");
  fs::directory_iterator(runs_, error);
  if (error && error != std::errc::no_such_file_or_directory) {
    return errnoStatus(error.value(), runs_);
  }
  JobList list;
  for (const fs::path& dir : listJobs(runs_)) {
    auto job = readJob(dir);
    if (job.ok()) {
      list.jobs.push_back(*std::move(job));
    } else if (!absl::IsNotFound(job.status())) {
      list.problems.push_back(job.status());
    }
  }
  return list;
}

StatusOr<Resumed> LocalJobs::resume(const std::string& name, const Waiting& waiting) {
  TY_ASSIGN_OR_RETURN(const fs::path dir, findJob(runs_, name));
  const std::unique_ptr<JobControl> record = controlOf(dir, clock_);
  const Patience patience(clock_, waiting.limit);
  for (bool asked = false;;) {
    TY_ASSIGN_OR_RETURN(const JobView job, record->read());
    if (!job.launcher) {
      auto run = reopenRun(dir.string(), clock_);
      if (run.ok()) {
        LauncherOptions launcher = launcher_;
        launcher.shown_dir = dir.string();
        return Resumed{"", runDetached(launcher, *std::move(run), waiting.limit, console_)};
      }
      // Somebody else has come to look after it.
      if (!absl::IsFailedPrecondition(run.status())) return run.status();
    } else if (job.state == "Terminating" || job.state == "Succeeded") {
      return absl::FailedPreconditionError(
          fmt::format("'{}' {}", job.name,
                      job.state == "Succeeded" ? "has finished already" : "is being deleted"));
    } else if (job.job.spec().run_policy().suspend()) {
      // A launcher that is still there then goes on.
      TY_RETURN_IF_ERROR(record->setSuspend(false));
      asked = true;
    } else if (job.state == "Running" || job.state == "Restarting") {
      return Resumed{fmt::format("{} {}: process {}", job.name,
                                 asked ? "goes on" : "is running already", *job.launcher)};
    }
    if (!patience.wait()) {
      return absl::DeadlineExceededError(fmt::format("'{}' does not run after {:.0f} s; it is {}",
                                                     job.name, toSeconds(waiting.limit),
                                                     job.state));
    }
  }
}

Status LocalJobs::logs(const JobView& job, const LogRequest& request, const LogPrinter& print) {
  TaskLogs tasks({job.dir, request.task, request.tail}, print.line);
  const control::RunPaths paths{job.dir};
  for (;;) {
    // The look at the launcher comes first: what it left is then read to its end.
    const auto holder = FileLock::holder(paths.lock());
    const bool over = !request.follow || !holder.ok() || !*holder;
    tasks.read(over);
    if (!print.flush() || over) return absl::OkStatus();
    pollUntil({}, clock_.now() + kLookAtRun);
  }
}

StatusOr<TaskPages> LocalJobs::metrics(const JobView& job) {
  const control::RunPaths paths{job.dir};
  return collectPages(
      control::wantedTasks(job.job), [&](const control::TaskKey& key) -> StatusOr<std::string> {
        TY_ASSIGN_OR_RETURN(const control::AgentFile agent,
                            control::readAgentFile(paths.agent(key)));
        const bool v6 = agent.ip.find(':') != std::string::npos;
        return httpGet(
            fmt::format("{}{}{}:{}", v6 ? "[" : "", agent.ip, v6 ? "]" : "", agent.metrics_port),
            "/metrics", kMetricsPatience);
      });
}

}  // namespace

std::unique_ptr<JobSource> makeLocalJobs(const std::string& runs, bool named,
                                         const LauncherOptions& launcher, const Console& console) {
  return std::make_unique<LocalJobs>(runs, named, launcher, console);
}

}  // namespace trainyard::cli
