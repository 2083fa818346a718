// `trainyard get`, `trainyard describe`: what jobs there are, and how they are.
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/core/exit_code.h"
#include "cli/command.h"
#include "cli/jobs/choose_source.h"
#include "cli/jobs/flags.h"
#include "cli/jobs/job_text.h"
#include "cli/run/environment.h"
#include "cli/run/programs.h"
#include "operator/job/job.h"

namespace trainyard::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxEvents = 10;

struct GetFlags {
  JobFlags job;
  std::string output = "table";
};

void printObject(const Console& console, const std::string& format, const Json& json) {
  console.out << (format == "yaml" ? control::toYaml(json) : json.dump(2) + "\n");
}

void printJobs(const Console& console, const GetFlags& flags, const std::vector<JobView>& jobs) {
  const bool one = !flags.job.job.empty();
  if (flags.output == "name") {
    for (const JobView& job : jobs) console.out << job.name << "\n";
  } else if (flags.output == "json" || flags.output == "yaml") {
    Json list;
    list["apiVersion"] = "trainyard.dev/v1alpha1";
    list["kind"] = "TrainingJobList";
    list["items"] = Json::array();
    for (const JobView& job : jobs) list["items"].push_back(jobJson(job));
    printObject(console, flags.output, one ? list["items"].at(0) : list);
  } else if (!jobs.empty()) {
    console.out << jobsTable(jobs, flags.output == "wide", console.clock->unixMillis(),
                             flags.job.cluster.all_namespaces);
  }
  console.out.flush();
}

int get(const GetFlags& flags, const Console& console) {
  const auto fail = [&](const Status& status) { return failVerb(console, "get", status); };
  const bool one = !flags.job.job.empty();
  if (one && flags.job.cluster.all_namespaces) {
    return fail(absl::InvalidArgumentError("JOB and --all-namespaces exclude each other"));
  }
  const auto source = chooseSource(flags.job, console);
  if (!source.ok()) return fail(source.status());
  JobList list;
  if (one) {
    auto job = (*source)->read(flags.job.job);
    if (!job.ok()) return fail(job.status());
    list.jobs.push_back(*std::move(job));
  } else {
    auto all = (*source)->list();
    if (!all.ok()) return fail(all.status());
    list = *std::move(all);
  }
  int code = kExitOk;
  for (const Status& problem : list.problems) code = fail(problem);  // the others are shown
  if (list.jobs.empty() && code != kExitOk) return code;
  printJobs(console, flags, list.jobs);
  if (list.jobs.empty() && (flags.output == "table" || flags.output == "wide")) {
    console.err << "No jobs found in " << (*source)->place() << "." << std::endl;
  }
  return code;
}

int describe(const JobFlags& flags, const Console& console) {
  const auto source = chooseSource(flags, console);
  if (!source.ok()) return failVerb(console, "describe", source.status());
  const auto details = (*source)->describe(flags.job);
  if (!details.ok()) return failVerb(console, "describe", details.status());
  const v1::TrainingJob& job = details->view.job;
  const auto programs = details->view.inCluster() ? taskPrograms(job) : programNotes(job);
  const auto facts = reportFacts(job, programs, Json::object());
  console.out << describeText(*details, facts, console.clock->unixMillis(), kMaxEvents)
              << std::flush;
  return kExitOk;
}

constexpr char kGetFooter[] =
    "STATE: Starting, Running, Restarting, Suspending, Suspended, Succeeded, Failed as the job "
    "says;\n"
    "Interrupted: its launcher went without an end; Terminating: it is being deleted. STEP of a "
    "job "
    "at\n"
    "rest is the one from which `trainyard resume` goes on. WORKERS and PS: ready/wanted. Of a "
    "cluster also\n"
    "Pending: no operator has taken it up yet.\n\n"
    "Examples:\n"
    "  trainyard get\n"
    "  trainyard get fashion -o yaml\n"
    "  trainyard get -o name --runs /srv/runs\n"
    "  trainyard get --cluster                   # jobs of the current context's namespace\n"
    "  trainyard get -A --context lab";

}  // namespace

void registerGet(CLI::App& app, ChosenCommand& chosen) {
  auto flags = std::make_shared<GetFlags>();
  CLI::App* verb = app.add_subcommand("get", "List jobs, with state and progress");
  verb->add_option("JOB", flags->job.job, "Only this one: its name, or its directory");
  verb->add_option("-o,--output", flags->output,
                   "table, wide (more columns), name, json or yaml: the jobs as recorded")
      ->check(CLI::IsMember({"table", "wide", "name", "json", "yaml"}));
  addRunsFlag(*verb, flags->job);
  addClusterFlags(*verb, flags->job.cluster, true);
  verb->add_flag("-A,--all-namespaces", flags->job.cluster.all_namespaces,
                 "Jobs of all namespaces of the cluster")
      ->excludes("--namespace")
      ->excludes("--runs")
      ->group(verb->get_option("--cluster")->get_group());
  verb->footer(kGetFooter);
  verb->callback([flags, &chosen] {
    chosen = [flags](const Console& console) { return get(*flags, console); };
  });
  auto job = std::make_shared<JobFlags>();
  verb = app.add_subcommand("describe",
                            "Show one job: progress, tasks, checkpoints, conditions, events");
  addJobFlags(*verb, *job);
  verb->callback([job, &chosen] {
    chosen = [job](const Console& console) { return describe(*job, console); };
  });
}

}  // namespace trainyard::cli
