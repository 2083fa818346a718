// `trainyard run`, and `trainyard launch`, the process behind `run --detach` and `resume`.
#include <arpa/inet.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/core/annotations.h"
#include "base/core/exit_code.h"
#include "base/core/log.h"
#include "base/core/printable.h"
#include "base/core/strings.h"
#include "base/flags/usage.h"
#include "base/rpc/grpc_process.h"
#include "cli/command.h"
#include "cli/run/detach.h"
#include "cli/run/launcher.h"
#include "cli/run/memory_check.h"
#include "cli/run/programs.h"
#include "fmt/format.h"
#include "operator/job/job.h"
#include "operator/job/template.h"
#include "operator/local/run_directory.h"

namespace trainyard::cli {
namespace {

struct RunFlags {
  std::string file;
  bool timeline = false;
  int processes = 0;                 // of `command`; 0: the job is in `file`
  bool horovod = false;              // likewise
  std::vector<std::string> command;  // behind "--"
  std::vector<std::string> sets;
  std::vector<std::string> volumes;
  std::string dir;
  bool start_anew = false;
  bool detach = false;
  double timeout = 120;  // seconds; of detach
  std::string task_wrapper;
  std::vector<std::string> task_addresses;
  LauncherOptions launcher;
};

int fail(const Console& console, const std::string& message, int code) {
  console.err << "trainyard run: " << printable(message) << std::endl;
  return code;
}

std::string text(const Status& status) {
  return std::string(fromAbsl(status.message()));
}

std::optional<v1::TrainingJob> loadCommand(const RunFlags& flags, const Console& console) {
  auto job = jobOfCommand(
      {.command = flags.command, .processes = flags.processes, .horovod = flags.horovod});
  if (job.ok()) return *std::move(job);
  console.err << "trainyard run: " << printable(text(job.status())) << std::endl;
  return std::nullopt;
}

// Whether the directory holds what an earlier command has left, which nobody goes on with.
bool holdsCommand(const std::string& dir) {
  const auto recorded = control::RunRecord(control::RunPaths{dir}).read();
  return recorded.ok() && control::isForeign(*recorded);
}

// Prints what is wrong with the file; nothing is returned then.
std::optional<v1::TrainingJob> load(const RunFlags& flags, const Console& console) {
  if (flags.processes > 0) return loadCommand(flags, console);
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

control::TaskPlaces taskPlaces(const RunFlags& flags) {
  control::TaskPlaces places;
  for (const std::string_view word : split(flags.task_wrapper, ' ')) {
    if (!word.empty()) places.wrapper.emplace_back(word);
  }
  for (const std::string& assignment : flags.task_addresses) {
    const auto [task, address] = splitFirst(assignment, '=');
    places.addresses[*control::parseTaskKey(task)] = std::string(address);
  }
  return places;
}

DirectoryOptions directoryOptions(const RunFlags& flags, const v1::TrainingJob& job,
                                  const Console& console) {
  DirectoryOptions options;
  options.dir = flags.dir.empty() ? console.runs_dir + "/" + job.metadata().name() : flags.dir;
  while (options.dir.size() > 1 && options.dir.back() == '/') options.dir.pop_back();
  options.cwd = std::filesystem::current_path().string();
  for (const std::string& volume : flags.volumes) {
    const auto [name, folder] = splitFirst(volume, '=');
    options.volumes[std::string(name)] = std::string(folder);
  }
  options.start_anew = flags.start_anew || (flags.processes > 0 && holdsCommand(options.dir));
  return options;
}

void configure(const LauncherOptions& flags, const Console& console) {
  LogOptions log;
  log.format = flags.log_format == "json" ? LogFormat::kJson : LogFormat::kText;
  // The table tells what happens; log lines would tear it.
  const bool table = console.out_is_terminal && flags.log_format == "text";
  log.level = table ? LogLevel::kError : LogLevel::kWarning;
  configureLog(log);
  prepareGrpc();
}

int runJob(const RunFlags& flags, const Console& console) {
  configure(flags.launcher, console);
  auto job = load(flags, console);
  if (!job) return kExitUsage;
  if (flags.timeline)
    (*job->mutable_metadata()->mutable_annotations())[kTimelineAnnotation] = "true";
  const DirectoryOptions directory = directoryOptions(flags, *job, console);
  LauncherOptions launcher = flags.launcher;
  launcher.shown_dir = directory.dir;
  launcher.show_output = flags.processes > 0;
  launcher.places = taskPlaces(flags);
  if (const Status status = checkPrograms(launcher, *job, console); !status.ok()) {
    return fail(console, text(status), absl::IsInvalidArgument(status) ? kExitUsage : kExitFailure);
  }
  if (const auto memory = availableMemory(); memory.ok() && job->spec().has_training()) {
    const Status fits = checkJobMemory(*job, *memory);
    if (!fits.ok()) return fail(console, text(fits), kExitFailure);
  }
  if (flags.detach) {
    auto opened = openRunDirectory(directory, *job, *console.clock);
    if (!opened.ok()) return fail(console, text(opened.status()), kExitUsage);
    return runDetached(launcher, *std::move(opened), fromSeconds(flags.timeout), console);
  }
  // From here on, before any thread exists: Ctrl-C stops the job instead of this program.
  auto signals = launcherSignals();
  if (!signals.ok()) return fail(console, text(signals.status()), kExitFailure);
  auto opened = openRunDirectory(directory, *job, *console.clock);
  if (!opened.ok()) return fail(console, text(opened.status()), kExitUsage);
  return runToEnd(launcher, *std::move(opened), *signals, console);
}

struct LaunchFlags {
  int lock_fd = -1;
  std::string headline;
  LauncherOptions launcher;
};

// The directory was opened by our parent process, which handed us its lock.
StatusOr<OpenedRun> takeOver(const LaunchFlags& flags) {
  const control::RunPaths paths{flags.launcher.shown_dir};
  TY_ASSIGN_OR_RETURN(FileLock lock, FileLock::adopt(flags.lock_fd, paths.lock()));
  TY_ASSIGN_OR_RETURN(v1::TrainingJob job, control::RunRecord(paths).read());
  job.clear_status();
  return OpenedRun{paths, std::move(lock), std::move(job), flags.headline, {}, {}, std::nullopt};
}

int launch(const LaunchFlags& flags, const Console& console) {
  configure(flags.launcher, console);
  auto signals = launcherSignals();
  if (!signals.ok()) return fail(console, text(signals.status()), kExitFailure);
  auto run = takeOver(flags);
  if (!run.ok()) return fail(console, text(run.status()), kExitFailure);
  return runToEnd(flags.launcher, *std::move(run), *signals, console);
}

// Throws as CLI11 does.
void checkWhatToRun(const RunFlags& flags) {
  if (flags.processes > 0 && flags.command.empty()) {
    throw CLI::ValidationError("-np", "needs a command: -np N -- COMMAND ARGUMENTS");
  }
  if (flags.processes > 0) return;
  if (!flags.command.empty()) {
    throw CLI::ValidationError(flags.command.front(),
                               "was not expected (a command needs -np N -- before it)");
  }
  if (flags.file.empty()) throw CLI::RequiredError("--file");
}

std::string checkTaskAddress(const std::string& assignment) {
  const auto [task, address] = splitFirst(assignment, '=');
  in6_addr ignored;
  const std::string text(address);
  const bool numeric = ::inet_pton(AF_INET, text.c_str(), &ignored) == 1 ||
                       ::inet_pton(AF_INET6, text.c_str(), &ignored) == 1;
  if (control::parseTaskKey(task) && numeric) return "";
  return fmt::format("\"{}\" is not TASK=ADDRESS, such as ps-0=10.0.0.2", assignment);
}

constexpr char kRunFooter[] =
    "Runs all tasks of the job as processes of this machine and shows how it goes. The directory "
    "keeps\n"
    "checkpoints, logs, metrics and report.html; the same command again goes on from the newest\n"
    "checkpoint, also of a suspended job. Ctrl-C stops with a checkpoint, a second one at once. "
    "With\n"
    "--detach it returns when the job runs; get, logs, suspend, resume and delete then look after "
    "it.\n\n"
    "Exit codes: 0 done, or suspended from elsewhere; 1 the job failed or was deleted; 2 wrong "
    "flags "
    "or\n"
    "file; 130 interrupted. The last line of standard output is \"result: succeeded steps=700\n"
    "accuracy=0.8931 ... dir=runs/fashion\", with --detach \"detached: process=4711 ...\".\n\n"
    "Examples:\n"
    "  trainyard run -f examples/fashion-mnist/ps-sync.yaml\n"
    "  trainyard run -f job.yaml --set training.steps=2000 --set worker.replicas=3 --new\n"
    "  trainyard run -f job.yaml --volume data=/srv/images --dir runs/try --detach\n"
    "  trainyard run -np 4 -- python3 train.py --epochs 3\n"
    "  trainyard run -np 4 --horovod -- python3 train_horovod.py";

void addLauncherFlags(CLI::App& verb, LauncherOptions& options) {
  verb.add_option("--log-format", options.log_format,
                  "text, or json: objects on standard error, only the result on standard output")
      ->check(CLI::IsMember({"text", "json"}));
  verb.add_option("--agent", options.agent)->group("");
  verb.add_option("--runtime", options.runtime)->group("");
}

void registerLaunch(CLI::App& app, ChosenCommand& chosen) {
  auto flags = std::make_shared<LaunchFlags>();
  CLI::App* launcher = app.add_subcommand("launch", "Look after a run that was opened already");
  launcher->group("");
  launcher->add_option("--dir", flags->launcher.shown_dir)->required();
  launcher->add_option("--lock-fd", flags->lock_fd)->required();
  launcher->add_option("--headline", flags->headline);
  addLauncherFlags(*launcher, flags->launcher);
  launcher->callback([flags, &chosen] {
    chosen = [flags](const Console& console) { return launch(*flags, console); };
  });
}

}  // namespace

void registerRun(CLI::App& app, ChosenCommand& chosen) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* run = app.add_subcommand("run", "Train a job on this machine");
  CLI::Option* file = run->add_option("-f,--file", flags->file, "TrainingJob file (YAML or JSON)");
  CLI::Option* processes =
      run->add_option("--np", flags->processes,
                      "-np N -- COMMAND...: run a command N times instead, with RANK, WORLD_SIZE,\n"
                      "LOCAL_RANK, MASTER_ADDR and MASTER_PORT in its environment")
          ->check(wholeNumber(1, kMaxProcesses))
          ->excludes(file);
  run->add_flag("--horovod", flags->horovod,
                "Of -np: the Python program finds ours where it imports Horovod")
      ->needs(processes);
  run->add_option("command", flags->command)->group("");
  run->add_option("--set", flags->sets, "PATH=VALUE: change a field of the job; may be repeated")
      ->allow_extra_args(false)
      ->check(assignment("PATH=VALUE"));
  run->add_option("--dir", flags->dir,
                  "Directory of the run (default: <job> in runs, or in what TRAINYARD_RUNS says)");
  run->add_option("--volume", flags->volumes,
                  "NAME=DIR: folder to use for a volume of the job; may be repeated")
      ->allow_extra_args(false)
      ->check(assignment("NAME=DIR"));
  run->add_flag("--timeline", flags->timeline,
                "Writes timeline.json, for chrome://tracing and ui.perfetto.dev");
  run->add_flag("--new", flags->start_anew, "Start over: removes what an earlier run left there");
  CLI::Option* detach = run->add_flag("--detach", flags->detach,
                                      "Run in the background, with launcher.log as output");
  run->add_option("--timeout", flags->timeout,
                  "Seconds to wait until a detached job runs (default: 120)")
      ->check(CLI::PositiveNumber)
      ->needs(detach);
  addLauncherFlags(*run, flags->launcher);
  run->add_option("--task-wrapper", flags->task_wrapper,
                  "Command that starts each task's agent, which follows as its last arguments;\n"
                  "{task} is the task's name: \"nsenter --net=/run/netns/{task}\"")
      ->excludes(detach);
  run->add_option("--task-address", flags->task_addresses,
                  "TASK=ADDRESS: where a task listens instead of 127.0.0.1; may be repeated")
      ->allow_extra_args(false)
      ->check(checkTaskAddress)
      ->excludes(detach);
  run->footer(kRunFooter);
  run->callback([flags, &chosen] {
    checkWhatToRun(*flags);
    chosen = [flags](const Console& console) { return runJob(*flags, console); };
  });
  registerLaunch(app, chosen);
}

}  // namespace trainyard::cli
