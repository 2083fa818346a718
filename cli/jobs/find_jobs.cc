#include "cli/jobs/find_jobs.h"

#include <algorithm>
#include <system_error>

#include "base/core/strings.h"
#include "cli/closest_word.h"
#include "fmt/format.h"
#include "operator/local/run_directory.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;

bool holdsJob(const fs::path& dir) {
  std::error_code error;
  return fs::exists(control::RunPaths{dir}.job(), error);
}

// A folder that may not be searched is shown as such, instead of being left out.
bool mayHoldJob(const fs::path& dir) {
  std::error_code error;
  if (!fs::is_directory(dir, error)) return false;
  return fs::exists(control::RunPaths{dir}.job(), error) || error.value() == EACCES;
}

std::vector<fs::path> withName(const std::vector<fs::path>& dirs, const std::string& name) {
  std::vector<fs::path> found;
  for (const fs::path& dir : dirs) {
    const auto job = control::RunRecord(control::RunPaths{dir}).read();
    if (job.ok() && job->metadata().name() == name) found.push_back(dir);
  }
  return found;
}

Status unknown(const fs::path& runs_dir, const std::vector<fs::path>& dirs,
               const std::string& job) {
  std::vector<std::string> names;
  for (const fs::path& dir : dirs) names.push_back(dir.filename().string());
  const std::string near = closestWord(job, names);
  std::string hint = "trainyard get lists the jobs there";
  if (dirs.empty()) hint = "it holds no job; --runs DIR looks elsewhere";
  if (!near.empty()) hint = fmt::format("did you mean '{}'?", near);
  return absl::InvalidArgumentError(
      fmt::format("there is no job '{}' in {}: {}", job, runs_dir.string(), hint));
}

}  // namespace

std::vector<fs::path> listJobs(const fs::path& runs_dir) {
  if (holdsJob(runs_dir)) return {runs_dir};
  std::vector<fs::path> dirs;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(runs_dir, ignored)) {
    if (mayHoldJob(entry.path())) dirs.push_back(entry.path());
  }
  std::sort(dirs.begin(), dirs.end());
  return dirs;
}

StatusOr<fs::path> findJob(const fs::path& runs_dir, const std::string& job) {
  if (job.empty()) return absl::InvalidArgumentError("the name of a job is empty");
  const bool is_path = job.find('/') != std::string::npos || job == "." || job == "..";
  if (!is_path && mayHoldJob(runs_dir / job)) return runs_dir / job;
  if (is_path) {
    std::error_code error;
    if (mayHoldJob(job)) {
      const fs::path path = fs::path(job).lexically_normal();
      return path.has_filename() ? path : path.parent_path();
    }
    return invalidInput(job, fs::is_directory(job, error) ? "is not a run directory: holds no job"
                                                          : "no such directory");
  }
  const std::vector<fs::path> dirs = listJobs(runs_dir);
  const std::vector<fs::path> named = withName(dirs, job);
  if (named.size() == 1) return named[0];
  if (named.size() > 1) {
    std::vector<std::string> texts;
    for (const fs::path& dir : named) texts.push_back(dir.string());
    return absl::InvalidArgumentError(fmt::format("there are {} jobs '{}': give the directory: {}",
                                                  named.size(), job, join(texts, ", ")));
  }
  if (mayHoldJob(job)) return fs::path(job);
  return unknown(runs_dir, dirs, job);
}

}  // namespace trainyard::cli
