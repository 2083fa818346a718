// `trainyard submit`: a job file, or a command, becomes or changes a TrainingJob of a cluster.
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/core/exit_code.h"
#include "base/core/strings.h"
#include "base/flags/usage.h"
#include "cli/command.h"
#include "cli/jobs/flags.h"
#include "cli/jobs/job_view.h"
#include "cli/kube/cluster_view.h"
#include "cli/kube/connect.h"
#include "cli/kube/submit.h"
#include "cli/run/programs.h"
#include "fmt/format.h"
#include "operator/job/job.h"
#include "operator/job/written.h"

namespace trainyard::cli {
namespace {

constexpr int kMaxGpus = 64;

struct SubmitFlags {
  std::string file;
  CommandJob command;  // 0 processes: the job is in `file`
  std::vector<std::string> sets;
  ClusterFlags cluster;
  bool dry_run = false;
  bool force = false;
};

void tell(const Submitted& done, const SubmitFlags& flags, const Console& console) {
  const JobView& job = done.job;
  console.out << fmt::format("{} {} in namespace {}{}", job.name, done.what, job.ns,
                             flags.dry_run ? " (dry run)" : "")
              << std::endl;
  if (flags.dry_run) return;
  if (job.finished()) {
    console.out << fmt::format(
                       "it has ended already ({}) and does not run again; delete it first: "
                       "trainyard delete {}{}",
                       job.state, job.name, flags.cluster.again(job.ns))
                << std::endl;
    return;
  }
  console.out << fmt::format("follow it with: trainyard logs {} -f{}", job.name,
                             flags.cluster.again(job.ns))
              << std::endl;
}

using Written = nlohmann::ordered_json;

// Prints what is wrong with the file; nothing is returned then.
std::optional<Written> readFileOf(const SubmitFlags& flags, const Console& console) {
  control::ParseOptions parse;
  for (const std::string& set : flags.sets) {
    const auto [path, value] = splitFirst(set, '=');
    parse.overrides.emplace_back(path, value);
  }
  std::vector<control::JobProblem> problems;
  Written written;
  const auto job = control::loadWrittenJob(flags.file == "-" ? "/dev/stdin" : flags.file, parse,
                                           &problems, &written);
  if (job.ok()) return written;
  for (const control::JobProblem& problem : problems) console.err << problem.text() << "\n";
  return std::nullopt;
}

// Likewise.
std::optional<Written> makeJob(const SubmitFlags& flags, const Console& console) {
  StatusOr<Written> written = documentOf(flags.command);
  // What the apiserver would refuse is told without asking it.
  const Status valid = written.ok() ? jobOfCommand(flags.command).status() : written.status();
  if (!valid.ok()) {
    failVerb(console, "submit", valid);
    return std::nullopt;
  }
  if (!flags.cluster.ns.empty()) (*written)["metadata"]["namespace"] = flags.cluster.ns;
  return *std::move(written);
}

int submit(const SubmitFlags& flags, const Console& console) {
  const bool command = flags.command.processes > 0;
  const auto written = command ? makeJob(flags, console) : readFileOf(flags, console);
  if (!written) return kExitUsage;
  if (command && flags.dry_run) {  // to be looked at, kept, and submitted with -f
    console.out << control::toYaml(*written) << std::flush;
    return kExitOk;
  }
  const auto connection = connectCluster(flags.cluster, console);
  if (!connection.ok()) return failVerb(console, "submit", connection.status());
  SubmitOptions options;
  options.ns = (*connection)->ns;
  options.ns_given = !flags.cluster.ns.empty();
  options.dry_run = flags.dry_run;
  options.force = flags.force;
  const auto done = submitJob(*(*connection)->client, nlohmann::json(*written), options);
  if (!done.ok()) {
    return failVerb(console, "submit", explain(done.status(), (*connection)->config.server));
  }
  tell(*done, flags, console);
  return kExitOk;
}

// Throws as CLI11 does.
void checkWhatToSubmit(const SubmitFlags& flags) {
  const CommandJob& job = flags.command;
  if (job.processes == 0) {
    if (!job.command.empty()) {
      throw CLI::ValidationError(job.command.front(),
                                 "was not expected (a command needs -np N -- before it)");
    }
    if (flags.file.empty()) throw CLI::RequiredError("--file");
    return;
  }
  if (job.command.empty()) {
    throw CLI::ValidationError("-np", "needs a command: -np N --image IMAGE -- COMMAND ARGUMENTS");
  }
  if (job.image.empty()) throw CLI::RequiredError("--image");
}

constexpr char kSubmitFooter[] =
    "Creates the TrainingJob, or changes the one of that name: fields that the file names become "
    "what it\n"
    "says, fields that an earlier submission named and this one does not are taken away, all "
    "others stay\n"
    "(server-side apply, field manager `trainyard`). Fields that a controller has set, such as the "
    "number of\n"
    "workers by an autoscaler, are refused.\n\n"
    "Examples:\n"
    "  trainyard submit -f job.yaml -n lab\n"
    "  trainyard submit -f job.yaml --set worker.replicas=4 --dry-run\n"
    "  trainyard submit -np 16 --image registry/train:1 --gpus 1 -- python3 train.py --epochs 3";

void addCommandFlags(CLI::App& verb, CommandJob& job, CLI::Option* file, CLI::Option* sets) {
  job.processes = 0;
  CLI::Option* processes =
      verb.add_option("--np", job.processes,
                      "-np N -- COMMAND...: a job of N workers that run a command, with RANK,\n"
                      "WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT in its environment")
          ->check(wholeNumber(1, kMaxProcesses))
          ->excludes(file)
          ->excludes(sets);
  verb.add_option("--image", job.image, "Of -np: image that holds the command")->needs(processes);
  verb.add_option("--gpus", job.gpus, "Of -np: GPUs of each worker (nvidia.com/gpu)")
      ->check(wholeNumber(0, kMaxGpus))
      ->needs(processes);
  verb.add_option("--name", job.name, "Of -np: name of the job (default: of the script)")
      ->needs(processes);
  verb.add_flag("--horovod", job.horovod,
                "Of -np: the Python program finds ours where it imports Horovod")
      ->needs(processes);
  verb.add_option("command", job.command)->group("");
}

}  // namespace

void registerSubmit(CLI::App& app, ChosenCommand& chosen) {
  auto flags = std::make_shared<SubmitFlags>();
  CLI::App* verb = app.add_subcommand("submit", "Train a job on a Kubernetes cluster");
  CLI::Option* file = verb->add_option("-f,--file", flags->file,
                                       "TrainingJob file (YAML or JSON); -: standard input");
  CLI::Option* sets = verb->add_option("--set", flags->sets,
                                       "PATH=VALUE: change a field of the job; may be repeated")
                          ->allow_extra_args(false)
                          ->check(assignment("PATH=VALUE"));
  addCommandFlags(*verb, flags->command, file, sets);
  verb->add_flag("--dry-run", flags->dry_run,
                 "Only ask the cluster whether it would take the job; of -np: print it as YAML");
  verb->add_flag("--force", flags->force, "Take over fields that a controller has set");
  addClusterFlags(*verb, flags->cluster, false);
  verb->footer(kSubmitFooter);
  verb->callback([flags, &chosen] {
    checkWhatToSubmit(*flags);
    chosen = [flags](const Console& console) { return submit(*flags, console); };
  });
}

}  // namespace trainyard::cli
