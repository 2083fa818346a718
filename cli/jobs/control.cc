#include "cli/jobs/control.h"

#include <signal.h>
#include <sys/stat.h>

#include <set>
#include <system_error>

#include "base/core/rfc3339.h"
#include "base/process/files.h"
#include "cli/jobs/job_view.h"
#include "cli/jobs/patience.h"
#include "cli/run/directory.h"
#include "fmt/format.h"
#include "operator/job/template.h"
#include "operator/local/leftovers.h"
#include "operator/local/run_directory.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;
using control::RunPaths;
using control::RunRecord;

// A killed process lets go of its lock at once; an edit takes milliseconds.
constexpr Duration kLockBound = std::chrono::seconds(5);
constexpr int kRemovals = 5;

Status checkCanStop(const JobView& job, bool asked) {
  if (job.state == "Terminating") {
    return absl::FailedPreconditionError(fmt::format("'{}' is being deleted", job.name));
  }
  if (job.finished()) {
    return absl::FailedPreconditionError(
        fmt::format("'{}' {}: {}", job.name,
                    asked ? "ended before it stopped" : "has ended already", job.state));
  }
  if (asked && job.attended() && !job.job.spec().run_policy().suspend()) {
    return absl::FailedPreconditionError(fmt::format("'{}' was resumed meanwhile", job.name));
  }
  return absl::OkStatus();
}

// Whether process `pid` has the file open: a number read from a file proves nothing.
bool hasOpen(pid_t pid, const fs::path& file) {
  struct stat wanted {
  }, open{};
  if (::stat(file.c_str(), &wanted) != 0) return false;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(fmt::format("/proc/{}/fd", pid), ignored)) {
    if (::stat(entry.path().c_str(), &open) == 0 && open.st_ino == wanted.st_ino &&
        open.st_dev == wanted.st_dev) {
      return true;
    }
  }
  return false;
}

StatusOr<FileLock> killLauncher(const RunPaths& paths, const Clock& clock) {
  TY_ASSIGN_OR_RETURN(const std::optional<pid_t> launcher, FileLock::holder(paths.lock()));
  if (launcher && *launcher > 1 && hasOpen(*launcher, paths.lock()) &&
      ::kill(*launcher, SIGKILL) != 0) {
    return errnoStatus(errno, fmt::format("end process {}", *launcher));
  }
  return FileLock::acquireBy(paths.lock(), clock, clock.now() + kLockBound);
}

Status removeEntry(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  return error ? errnoStatus(error.value(), "remove " + path.string()) : absl::OkStatus();
}

// The record goes last, so that a deletion that was cut short can be repeated.
Status removeRun(const RunPaths& paths, const Clock& clock) {
  const auto edits = FileLock::acquireBy(paths.editLock(), clock, clock.now() + kLockBound);
  TY_RETURN_IF_ERROR(edits.status());
  const std::set<fs::path> last = {paths.job(), paths.lock(), paths.editLock()};
  std::error_code error;
  fs::directory_iterator entries(paths.dir, error);
  if (error) return errnoStatus(error.value(), paths.dir.string());
  for (const auto& entry : entries) {
    if (!last.contains(entry.path())) TY_RETURN_IF_ERROR(removeEntry(entry.path()));
  }
  TY_RETURN_IF_ERROR(removeEntry(paths.job()));
  // Who waits for a lock may make its file once more.
  Status removed;
  for (int i = 0; i < kRemovals; ++i) {
    removed = removeEntry(paths.dir);
    if (removed.ok()) break;
  }
  return removed;
}

// Of steps, and of checkpoints, programs without `training` tell nothing.
std::string placeOf(const JobView& job, std::string_view before) {
  return control::isForeign(job.job) ? "" : fmt::format("{}{}", before, job.step);
}

}  // namespace

StatusOr<std::string> suspendJob(JobControl& control, const Waiting& waiting, const Clock& clock) {
  const Patience patience(clock, waiting.limit, control.look());
  for (bool asked = false;;) {
    const auto job = control.read();
    if (asked && absl::IsNotFound(job.status())) {
      return absl::FailedPreconditionError(
          fmt::format("{} was deleted meanwhile", control.shown()));
    }
    TY_RETURN_IF_ERROR(job.status());
    TY_RETURN_IF_ERROR(checkCanStop(*job, asked));
    if (job->state == "Suspended") {
      return fmt::format("{} {}{}", job->name, asked ? "suspended" : "is suspended already",
                         placeOf(*job, asked ? " at step " : ", at step "));
    }
    if (!job->attended()) {
      TY_ASSIGN_OR_RETURN(const bool done, control.suspendAtRest());
      if (done) {
        return fmt::format("{} suspended{} (nothing of it was running)", job->name,
                           placeOf(*job, " at step "));
      }
    } else if (!asked) {
      TY_RETURN_IF_ERROR(control.setSuspend(true));
      asked = true;
      if (!waiting.wait) {
        return fmt::format("{} stops{}", job->name,
                           control::isForeign(job->job) ? "" : " with a checkpoint");
      }
    }
    if (!patience.wait()) {
      return absl::DeadlineExceededError(
          fmt::format("'{}' has not stopped after {:.0f} s; it is {}", job->name,
                      toSeconds(waiting.limit), job->state));
    }
  }
}

StatusOr<std::string> deleteJob(const fs::path& dir, Duration grace, const Clock& clock) {
  std::error_code ignored;
  // Processes of the job are recognised by the absolute path.
  const RunPaths paths{fs::absolute(dir, ignored).lexically_normal()};
  const std::string done = paths.dir.filename().string() + " deleted";
  if (const std::string foreign = foreignEntry(paths.dir); !foreign.empty()) {
    return invalidInput(dir.string(), fmt::format("holds '{}', which no run has made: nothing is "
                                                  "deleted",
                                                  foreign));
  }
  const std::string now = formatRfc3339(clock.unixMillis());
  const Status marked = RunRecord(paths).edit(clock, [&](v1::TrainingJob* job) {
    if (job->metadata().has_deletion_timestamp()) return false;
    job->mutable_metadata()->set_deletion_timestamp(now);
    return true;
  });
  // A record that cannot be read goes too.
  if (!marked.ok() && !absl::IsInvalidArgument(marked) && !absl::IsNotFound(marked)) return marked;
  auto lock = FileLock::acquireBy(paths.lock(), clock, clock.now() + grace);
  if (absl::IsFailedPrecondition(lock.status())) lock = killLauncher(paths, clock);
  if (!fs::exists(paths.job(), ignored)) {
    fs::remove_all(paths.dir, ignored);  // at most a lock's file that we made
    return done;                         // by somebody else
  }
  TY_RETURN_IF_ERROR(lock.status());
  control::endLeftoversOf(paths, clock);
  TY_RETURN_IF_ERROR(removeRun(paths, clock));
  return done;
}

}  // namespace trainyard::cli
