// `trainyard submit`: a job file becomes, or changes, a TrainingJob of a cluster.
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "base/core/exit_code.h"
#include "base/core/strings.h"
#include "base/flags/usage.h"
#include "cli/command.h"
#include "cli/jobs/flags.h"
#include "cli/jobs/job_view.h"
#include "cli/kube/cluster_view.h"
#include "cli/kube/connect.h"
#include "cli/kube/submit.h"
#include "fmt/format.h"
#include "operator/job/written.h"

namespace trainyard::cli {
namespace {

struct SubmitFlags {
  std::string file;
  std::vector<std::string> sets;
  ClusterFlags cluster;
  bool dry_run = false;
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

int submit(const SubmitFlags& flags, const Console& console) {
  control::ParseOptions parse;
  for (const std::string& set : flags.sets) {
    const auto [path, value] = splitFirst(set, '=');
    parse.overrides.emplace_back(path, value);
  }
  std::vector<control::JobProblem> problems;
  nlohmann::ordered_json written;
  const auto job = control::loadWrittenJob(flags.file == "-" ? "/dev/stdin" : flags.file, parse,
                                           &problems, &written);
  if (!job.ok()) {
    for (const control::JobProblem& problem : problems) console.err << problem.text() << "\n";
    return kExitUsage;
  }
  const auto connection = connectCluster(flags.cluster, console);
  if (!connection.ok()) return failVerb(console, "submit", connection.status());
  SubmitOptions options;
  options.ns = (*connection)->ns;
  options.ns_given = !flags.cluster.ns.empty();
  options.dry_run = flags.dry_run;
  const auto done = submitJob(*(*connection)->client, nlohmann::json(written), options);
  if (!done.ok()) {
    return failVerb(console, "submit", explain(done.status(), (*connection)->config.server));
  }
  tell(*done, flags, console);
  return kExitOk;
}

constexpr char kSubmitFooter[] =
    "Creates the TrainingJob, or changes the one of that name: fields that the file names become "
    "what it\n"
    "says, fields that an earlier submission named and this one does not are taken away, all "
    "others stay\n"
    "(server-side apply, field manager `trainyard`).\n\n"
    "Examples:\n"
    "  trainyard submit -f job.yaml -n lab\n"
    "  trainyard submit -f job.yaml --set worker.replicas=4 --dry-run";

}  // namespace

void registerSubmit(CLI::App& app, ChosenCommand& chosen) {
  auto flags = std::make_shared<SubmitFlags>();
  CLI::App* verb = app.add_subcommand("submit", "Train a job on a Kubernetes cluster");
  verb->add_option("-f,--file", flags->file, "TrainingJob file (YAML or JSON); -: standard input")
      ->required();
  verb->add_option("--set", flags->sets, "PATH=VALUE: change a field of the job; may be repeated")
      ->allow_extra_args(false)
      ->check(assignment("PATH=VALUE"));
  verb->add_flag("--dry-run", flags->dry_run, "Only ask the cluster whether it would take the job");
  addClusterFlags(*verb, flags->cluster, false);
  verb->footer(kSubmitFooter);
  verb->callback([flags, &chosen] {
    chosen = [flags](const Console& console) { return submit(*flags, console); };
  });
}

}  // namespace trainyard::cli
