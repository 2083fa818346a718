#include <signal.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "base/core/exit_code.h"
#include "base/core/log.h"
#include "base/core/strings.h"
#include "base/process/child_process.h"
#include "base/process/signals.h"
#include "cli/command.h"
#include "cli/run/session.h"
#include "fmt/format.h"
#include "operator/job/job.h"

namespace trainyard::cli {
namespace {

// What may still be there when all tasks were ended is killed within this time.
constexpr Duration kLastBound = std::chrono::seconds(1);

struct RunFlags {
  std::string file;
  std::vector<std::string> sets;
  std::vector<std::string> volumes;
  std::string dir;
  bool start_anew = false;
  std::string log_format = "text";
  std::string agent;  // "": beside this program
  std::string runtime;
};

int fail(const Console& console, const std::string& message, int code) {
  console.err << "trainyard run: " << message << std::endl;
  return code;
}

std::string text(const Status& status) {
  return std::string(fromAbsl(status.message()));
}

// Prints what is wrong with the file; nothing is returned then.
std::optional<v1::TrainingJob> load(const RunFlags& flags, const Console& console) {
  control::ParseOptions parse;
  for (const std::string& set : flags.sets) {
    const auto [path, value] = splitFirst(set, '=');
    parse.overrides.emplace_back(path, value);
  }
  std::vector<control::JobProblem> problems;
  auto job = control::loadJob(flags.file, parse, &problems);
  if (!job.ok()) {
    for (const control::JobProblem& problem : problems) console.err << problem.text() << "\n";
    if (problems.empty()) console.err << text(job.status()) << "\n";
    console.err.flush();
    return std::nullopt;
  }
  Status supported = control::checkSupported(*job);
  if (supported.ok() && job->spec().run_policy().suspend()) {
    supported = invalidInput("spec.runPolicy.suspend",
                             "is true, so nothing would run (--set runPolicy.suspend=false)");
  }
  if (supported.ok()) return *std::move(job);
  console.err << flags.file << ": " << text(supported) << std::endl;
  return std::nullopt;
}

DirectoryOptions directoryOptions(const RunFlags& flags, const v1::TrainingJob& job) {
  DirectoryOptions options;
  options.dir = flags.dir.empty() ? "runs/" + job.metadata().name() : flags.dir;
  while (options.dir.size() > 1 && options.dir.back() == '/') options.dir.pop_back();
  options.cwd = std::filesystem::current_path().string();
  for (const std::string& volume : flags.volumes) {
    const auto [name, folder] = splitFirst(volume, '=');
    options.volumes[std::string(name)] = std::string(folder);
  }
  options.start_anew = flags.start_anew;
  return options;
}

SessionOptions sessionOptions(const RunFlags& flags, const std::string& dir,
                              const Console& console) {
  SessionOptions options;
  const std::filesystem::path programs = std::filesystem::absolute(console.program_dir);
  options.agent_path = flags.agent.empty() ? (programs / "trainyard-agent").string() : flags.agent;
  options.runtime_path =
      flags.runtime.empty() ? (programs / "trainyard-runtime").string() : flags.runtime;
  options.shown_dir = dir;
  options.log_format = flags.log_format == "json" ? LogFormat::kJson : LogFormat::kText;
  return options;
}

void configure(const RunFlags& flags, const Console& console) {
  LogOptions log;
  log.format = flags.log_format == "json" ? LogFormat::kJson : LogFormat::kText;
  // The table tells what happens; log lines would tear it.
  const bool table = console.out_is_terminal && flags.log_format == "text";
  log.level = table ? LogLevel::kError : LogLevel::kWarning;
  configureLog(log);
}

int exitCode(const RunResult& result) {
  if (result.outcome == "interrupted") return kExitInterrupted;
  return result.outcome == "failed" ? kExitFailure : kExitOk;
}

int runJob(const RunFlags& flags, const Console& console) {
  configure(flags, console);
  const auto job = load(flags, console);
  if (!job) return kExitUsage;
  // From here on, before any thread exists: Ctrl-C stops the job instead of this program.
  auto signals = SignalWaiter::create({SIGINT, SIGTERM, SIGHUP});
  if (!signals.ok()) return fail(console, text(signals.status()), kExitFailure);
  const DirectoryOptions directory = directoryOptions(flags, *job);
  auto opened = openRunDirectory(directory, *job, *console.clock);
  if (!opened.ok()) return fail(console, text(opened.status()), kExitUsage);
  const bool json = flags.log_format == "json";
  const std::unique_ptr<Display> display = makeDisplay(console, json);
  display->event({console.clock->unixMillis(), "state", opened->headline});
  if (opened->finished) {
    console.out << resultLine(*opened->finished) << std::endl;
    return exitCode(*opened->finished);
  }
  if (const Status status = becomeSubreaper(); !status.ok()) {
    return fail(console, text(status), kExitFailure);
  }
  RunResult result;
  {
    Session session(sessionOptions(flags, directory.dir, console), *std::move(opened),
                    *console.clock, *signals, *display);
    if (const Status status = session.start(); !status.ok()) {
      return fail(console, text(status), kExitFailure);
    }
    session.waitForEnd();
    result = session.finish();
    killDescendants(console.clock->now() + kLastBound);  // before the directory is free for others
  }
  if (!json) console.out << "report: " << directory.dir << "/report.html\n";
  console.out << resultLine(result) << std::endl;
  return exitCode(result);
}

std::string checkAssignment(const std::string& assignment) {
  const auto [name, value] = splitFirst(assignment, '=');
  if (!name.empty() && assignment.find('=') != std::string::npos) return "";
  return fmt::format("\"{}\" is not NAME=VALUE", assignment);
}

constexpr char kFooter[] =
    "Runs all tasks of the job as processes of this machine and shows how it goes. The directory "
    "keeps\n"
    "checkpoints, logs, metrics and report.html; the same command again goes on from the newest\n"
    "checkpoint. Ctrl-C stops with a checkpoint, a second one at once.\n\n"
    "Exit codes: 0 done, 1 the job failed, 2 wrong flags or file, 130 interrupted. The last line "
    "of\n"
    "standard output is \"result: succeeded steps=700 accuracy=0.8931 ... dir=runs/fashion\".\n\n"
    "Examples:\n"
    "  trainyard run -f examples/fashion-mnist/ps-sync.yaml\n"
    "  trainyard run -f job.yaml --set training.steps=2000 --set worker.replicas=3 --new\n"
    "  trainyard run -f job.yaml --volume data=/srv/images --dir runs/try";

}  // namespace

void registerRun(CLI::App& app, ChosenCommand& chosen) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* run = app.add_subcommand("run", "Train a job on this machine");
  run->add_option("-f,--file", flags->file, "TrainingJob file (YAML or JSON)")->required();
  run->add_option("--set", flags->sets, "PATH=VALUE: change a field of the job; may be repeated")
      ->allow_extra_args(false)
      ->check(checkAssignment);
  run->add_option("--dir", flags->dir, "Directory of the run (default: runs/<job>)");
  run->add_option("--volume", flags->volumes,
                  "NAME=DIR: folder to use for a volume of the job; may be repeated")
      ->allow_extra_args(false)
      ->check(checkAssignment);
  run->add_flag("--new", flags->start_anew, "Start over: removes what an earlier run left there");
  run->add_option("--log-format", flags->log_format,
                  "text, or json: objects on standard error, only the result on standard output")
      ->check(CLI::IsMember({"text", "json"}));
  run->add_option("--agent", flags->agent)->group("");
  run->add_option("--runtime", flags->runtime)->group("");
  run->footer(kFooter);
  run->callback([flags, &chosen] {
    chosen = [flags](const Console& console) { return runJob(*flags, console); };
  });
}

}  // namespace trainyard::cli
