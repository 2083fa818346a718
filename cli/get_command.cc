// `trainyard get`, `trainyard describe`: what local jobs there are, and how they are.
#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "base/core/exit_code.h"
#include "base/core/strings.h"
#include "cli/command.h"
#include "cli/jobs/find_jobs.h"
#include "cli/jobs/flags.h"
#include "cli/jobs/job_text.h"
#include "cli/run/environment.h"
#include "fmt/format.h"
#include "operator/job/job.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;
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
    console.out << jobsTable(jobs, flags.output == "wide", console.clock->unixMillis());
  }
  console.out.flush();
}

StatusOr<std::vector<fs::path>> chosen(const GetFlags& flags, const std::string& runs) {
  if (!flags.job.job.empty()) {
    TY_ASSIGN_OR_RETURN(fs::path dir, findJob(runs, flags.job.job));
    return std::vector<fs::path>{std::move(dir)};
  }
  std::error_code error;
  if (!flags.job.runs.empty() && !fs::is_directory(runs, error)) {
    return invalidInput(runs, "no such directory");
  }
  fs::directory_iterator(runs, error);
  if (error && error != std::errc::no_such_file_or_directory) {
    return errnoStatus(error.value(), runs);
  }
  return listJobs(runs);
}

int get(const GetFlags& flags, const Console& console) {
  const std::string runs = runsDir(flags.job, console);
  const auto dirs = chosen(flags, runs);
  if (!dirs.ok()) return failVerb(console, "get", dirs.status());
  std::vector<JobView> jobs;
  int code = kExitOk;
  for (const fs::path& dir : *dirs) {
    auto job = readJob(dir);
    if (job.ok()) {
      jobs.push_back(*std::move(job));
    } else if (!absl::IsNotFound(job.status()) || !flags.job.job.empty()) {
      code = failVerb(console, "get", job.status());  // the others are shown all the same
    }
  }
  if (jobs.empty() && code != kExitOk) return code;
  printJobs(console, flags, jobs);
  if (jobs.empty() && (flags.output == "table" || flags.output == "wide")) {
    console.err << "No jobs found in " << runs << "." << std::endl;
  }
  return code;
}

int describe(const JobFlags& flags, const Console& console) {
  const auto dir = findJob(runsDir(flags, console), flags.job);
  if (!dir.ok()) return failVerb(console, "describe", dir.status());
  const auto details = readDetails(*dir);
  if (!details.ok()) return failVerb(console, "describe", details.status());
  const auto facts = reportFacts(details->view.job, Json::object());
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
    "rest is the one from which `trainyard resume` goes on. WORKERS and PS: ready/wanted.\n\n"
    "Examples:\n"
    "  trainyard get\n"
    "  trainyard get fashion -o yaml\n"
    "  trainyard get -o name --runs /srv/runs";

}  // namespace

void registerGet(CLI::App& app, ChosenCommand& chosen) {
  auto flags = std::make_shared<GetFlags>();
  CLI::App* verb = app.add_subcommand("get", "List local jobs, with state and progress");
  verb->add_option("JOB", flags->job.job, "Only this one: its name, or its directory");
  verb->add_option("-o,--output", flags->output,
                   "table, wide (more columns), name, json or yaml: the jobs as recorded")
      ->check(CLI::IsMember({"table", "wide", "name", "json", "yaml"}));
  addRunsFlag(*verb, flags->job);
  verb->footer(kGetFooter);
  verb->callback([flags, &chosen] {
    chosen = [flags](const Console& console) { return get(*flags, console); };
  });
  auto job = std::make_shared<JobFlags>();
  verb = app.add_subcommand("describe",
                            "Show one local job: progress, tasks, checkpoints, conditions, events");
  addJobFlags(*verb, *job);
  verb->callback([job, &chosen] {
    chosen = [job](const Console& console) { return describe(*job, console); };
  });
}

}  // namespace trainyard::cli
