#include "cli/run/detach.h"

#include <filesystem>
#include <ostream>
#include <utility>

#include "base/core/exit_code.h"
#include "base/core/printable.h"
#include "base/core/strings.h"
#include "base/process/files.h"
#include "cli/jobs/job_view.h"
#include "cli/jobs/patience.h"
#include "fmt/format.h"
#include "operator/job/template.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxLogBytes = 64 << 20;

// The last line that the launcher wrote behind the first `before` bytes of its log.
std::string lastWords(const fs::path& log, std::size_t before) {
  const std::string text = readFile(log, kMaxLogBytes).value_or("");
  if (text.size() <= before) return "";
  const std::string_view own = trim(std::string_view(text).substr(before));
  const std::size_t newline = own.rfind('\n');
  return std::string(newline == std::string_view::npos ? own : own.substr(newline + 1));
}

int reportEnd(const ExitState& exit, const std::string& words, const Console& console) {
  if (words.starts_with("result: ")) {
    console.out << words << std::endl;
  } else {
    console.err << (words.empty() ? "trainyard run: the launcher ended: " + toString(exit) : words)
                << std::endl;
  }
  return exit.signal != 0 ? kExitFailure : exit.code;
}

void reportRunning(const LauncherOptions& options, pid_t pid, bool foreign,
                   const Console& console) {
  const std::string job = jobArgument(options.shown_dir, console.runs_dir);
  if (options.log_format != "json") {
    console.out << fmt::format(
        "follow it with: trainyard logs {} -f\n"
        "stop it{}: trainyard suspend {}\n",
        job, foreign ? "" : " with a checkpoint", job);
  }
  console.out << fmt::format("detached: process={} log={}/launcher.log dir={}", pid,
                             options.shown_dir, options.shown_dir)
              << std::endl;
}

}  // namespace

int runDetached(const LauncherOptions& options, OpenedRun run, Duration limit,
                const Console& console) {
  if (options.log_format != "json") {
    for (const std::string& warning : run.warnings) console.out << "warning: " << warning << "\n";
    console.out << run.headline << std::endl;
    for (const std::string& note : run.notes) console.out << note << std::endl;
  }
  if (run.finished) {
    console.out << resultLine(*run.finished) << std::endl;
    return exitCode(*run.finished);
  }
  const fs::path dir = run.paths.dir;
  const fs::path log = run.paths.launcherLog();
  const bool foreign = control::isForeign(run.job);
  std::error_code error;
  const auto size = fs::file_size(log, error);
  const std::size_t before = error ? 0 : size;
  auto child = spawnLauncher(options, std::move(run), console);
  if (!child.ok()) {
    console.err << "trainyard run: " << printable(fromAbsl(child.status().message())) << std::endl;
    return kExitFailure;
  }
  const pid_t pid = child->pid();
  const Patience patience(*console.clock, limit);
  for (;;) {
    if (const auto exit = child->poll(); exit.ok() && *exit) {
      return reportEnd(**exit, lastWords(log, before), console);
    }
    const auto job = readJob(dir);
    if (job.ok() && (job->state == "Running" || job->state == "Restarting")) break;
    if (patience.wait()) continue;
    std::move(*child).release();
    console.err << fmt::format(
                       "trainyard run: not running after {:.0f} s: {}; process {} goes on with it",
                       toSeconds(limit), job.ok() ? job->state : "unreadable", pid)
                << std::endl;
    return kExitFailure;
  }
  std::move(*child).release();
  reportRunning(options, pid, foreign, console);
  return kExitOk;
}

}  // namespace trainyard::cli
