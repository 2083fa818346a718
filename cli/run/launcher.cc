#include "cli/run/launcher.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <ostream>
#include <utility>

#include "base/core/exit_code.h"
#include "base/core/log.h"
#include "base/core/printable.h"
#include "base/core/strings.h"
#include "base/programs/runtime_program.h"
#include "cli/run/session.h"
#include "fmt/format.h"
#include "operator/job/template.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;

// What may still be there when all tasks were ended is killed within this time.
constexpr Duration kLastBound = std::chrono::seconds(1);

SessionOptions sessionOptions(const LauncherOptions& launcher, const Console& console) {
  SessionOptions options;
  const fs::path programs = fs::absolute(console.program_dir);
  options.agent_path =
      launcher.agent.empty() ? (programs / "trainyard-agent").string() : launcher.agent;
  options.runtime_path =
      launcher.runtime.empty() ? (programs / "trainyard-runtime").string() : launcher.runtime;
  options.shown_dir = launcher.shown_dir;
  options.show_output = launcher.show_output;
  options.log_format = launcher.log_format == "json" ? LogFormat::kJson : LogFormat::kText;
  options.places = launcher.places;
  return options;
}

int fail(const Console& console, const Status& status) {
  console.err << "trainyard run: " << printable(fromAbsl(status.message())) << std::endl;
  return kExitFailure;
}

// As a user can type it here: a program in a folder below this one is hardly on the PATH.
std::string shownProgram(const Console& console) {
  std::error_code ignored;
  const fs::path here = fs::proximate(console.program_dir, ignored);
  const bool below = !ignored && here.is_relative() && !here.empty() && *here.begin() != "..";
  return below ? (here / "trainyard").lexically_normal().string() : "trainyard";
}

void printEnd(const LauncherOptions& options, const RunResult& result, const Console& console) {
  const std::string& outcome = result.outcome;
  std::error_code ignored;
  const std::string report = options.shown_dir + "/report.html";
  if (options.log_format != "json" && outcome != "deleted") {
    if (fs::exists(report, ignored)) console.out << "report: " << report << "\n";
    if (outcome == "suspended" || outcome == "interrupted") {
      console.out << "to go on: " << shownProgram(console) << " resume "
                  << jobArgument(options.shown_dir, console.runs_dir) << "\n";
    }
  }
  console.out << resultLine(result) << std::endl;
}

}  // namespace

std::string jobArgument(const std::string& dir, const std::string& runs_dir) {
  const fs::path path = fs::path(dir).lexically_normal();
  if (path.parent_path() == fs::path(runs_dir).lexically_normal()) return path.filename().string();
  return path.has_parent_path() ? path.string() : "./" + path.string();
}

int exitCode(const RunResult& result) {
  if (result.outcome == "interrupted") return kExitInterrupted;
  return result.outcome == "failed" || result.outcome == "deleted" ? kExitFailure : kExitOk;
}

StatusOr<SignalWaiter> launcherSignals() {
  return SignalWaiter::create({SIGINT, SIGTERM, SIGHUP});
}

Status checkPrograms(const LauncherOptions& launcher, const v1::TrainingJob& job,
                     const Console& console) {
  const SessionOptions options = sessionOptions(launcher, console);
  std::vector<std::string> paths = {options.agent_path};
  if (!control::isForeign(job)) paths.push_back(options.runtime_path);
  for (const std::string& path : paths) {
    if (::access(path.c_str(), X_OK) == 0) continue;
    return errnoStatus(errno, fmt::format("{} (it belongs beside trainyard)", path));
  }
  if (control::isForeign(job)) return absl::OkStatus();
  for (const v1::Role role : {v1::ROLE_PS, v1::ROLE_WORKER}) {
    TY_RETURN_IF_ERROR(
        runtimeProgram(options.runtime_path, job.spec().training(), role, nullptr).status());
  }
  return absl::OkStatus();
}

int runToEnd(const LauncherOptions& options, OpenedRun run, SignalWaiter& signals,
             const Console& console) {
  const bool json = options.log_format == "json";
  const std::unique_ptr<Display> display = makeDisplay(console, json);
  for (const std::string& warning : run.warnings) {
    display->event({console.clock->unixMillis(), "warning", warning});
  }
  display->event({console.clock->unixMillis(), "state", run.headline});
  for (const std::string& note : run.notes) {
    display->event({console.clock->unixMillis(), "state", note});
  }
  if (run.finished) {
    console.out << resultLine(*run.finished) << std::endl;
    return exitCode(*run.finished);
  }
  if (const Status status = becomeSubreaper(); !status.ok()) return fail(console, status);
  RunResult result;
  {
    SessionOptions session_options = sessionOptions(options, console);
    session_options.reaps_orphans = true;
    Session session(std::move(session_options), std::move(run), *console.clock, signals, *display);
    if (const Status status = session.start(); !status.ok()) return fail(console, status);
    session.waitForEnd();
    result = session.finish();
    killDescendants(console.clock->now() + kLastBound);  // before the directory is free for others
  }
  printEnd(options, result, console);
  return exitCode(result);
}

StatusOr<ChildProcess> spawnLauncher(const LauncherOptions& options, OpenedRun run,
                                     const Console& console) {
  TY_RETURN_IF_ERROR(checkPrograms(options, run.job, console));
  SpawnOptions spawn;
  spawn.argv = {(fs::absolute(console.program_dir) / "trainyard").string(),
                "launch",
                "--dir",
                options.shown_dir,
                "--lock-fd",
                std::to_string(run.lock.fd()),
                "--headline",
                run.headline,
                "--log-format",
                options.log_format};
  for (const auto& [flag, value] :
       {std::pair("--agent", options.agent), std::pair("--runtime", options.runtime)}) {
    if (!value.empty()) spawn.argv.insert(spawn.argv.end(), {flag, value});
  }
  spawn.output_file = run.paths.launcherLog().string();
  spawn.new_session = true;
  spawn.keep_fds = {run.lock.fd()};
  return ChildProcess::spawn(spawn);
  // The lock goes with `run`, but stays with the child.
}

}  // namespace trainyard::cli
