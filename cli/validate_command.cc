#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/core/exit_code.h"
#include "base/core/strings.h"
#include "base/flags/usage.h"
#include "cli/command.h"
#include "fmt/format.h"
#include "operator/job/job.h"

namespace trainyard::cli {
namespace {

struct ValidateOptions {
  std::string file;
  std::vector<std::string> sets;
  std::string output = "text";
};

std::string counted(int count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

// "2 ps, 4 workers"; a ring has no ps.
std::string describeTasks(const v1::JobSpec& spec) {
  std::string workers = counted(spec.worker().replicas(), "worker");
  if (const int processes = spec.worker().processes_per_pod(); processes > 1)
    workers += fmt::format(" of {} processes", processes);
  return spec.has_ps() ? fmt::format("{} ps, {}", spec.ps().replicas(), workers) : workers;
}

int runValidate(const ValidateOptions& options, const Console& console) {
  control::ParseOptions parse;
  for (const std::string& set : options.sets) {
    const auto [path, value] = splitFirst(set, '=');
    parse.overrides.emplace_back(path, value);
  }
  std::vector<control::JobProblem> problems;
  const StatusOr<v1::TrainingJob> job = control::loadJob(options.file, parse, &problems);
  if (!job.ok()) {
    for (const control::JobProblem& problem : problems) console.err << problem.text() << "\n";
    return kExitUsage;
  }
  if (options.output == "json") {
    console.out << toJson(*job).dump(2) << "\n";
  } else {
    console.out << fmt::format("{}: valid (TrainingJob {}: {})\n", options.file,
                               job->metadata().name(), describeTasks(job->spec()));
  }
  console.out.flush();
  return kExitOk;
}

}  // namespace

void registerValidate(CLI::App& app, ChosenCommand& chosen) {
  auto options = std::make_shared<ValidateOptions>();
  CLI::App* validate =
      app.add_subcommand("validate", "Check a TrainingJob file and say everything wrong with it");
  validate->add_option("-f,--file", options->file, "TrainingJob file (YAML or JSON)")->required();
  validate
      ->add_option("--set", options->sets, "PATH=VALUE: change a field of the job; may be repeated")
      ->allow_extra_args(false)
      ->check(assignment("PATH=VALUE"));
  validate
      ->add_option("-o,--output", options->output, "text, or json: the job with all its defaults")
      ->check(CLI::IsMember({"text", "json"}));
  validate->callback([options, &chosen] {
    chosen = [options](const Console& console) { return runValidate(*options, console); };
  });
}

}  // namespace trainyard::cli
