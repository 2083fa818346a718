#include <memory>
#include <string>
#include <vector>

#include "base/core/exit_code.h"
#include "base/core/strings.h"
#include "cli/command.h"
#include "cli/plan/plan_report.h"
#include "fmt/format.h"
#include "operator/job/job.h"

namespace trainyard::cli {
namespace {

struct PlanOptions {
  std::string file;
  std::vector<std::string> sets;
  std::string output = "text";
};

int runPlan(const PlanOptions& options, const Console& console) {
  control::ParseOptions parse;
  for (const std::string& set : options.sets) {
    const auto [path, value] = splitFirst(set, '=');
    parse.overrides.emplace_back(path, value);
  }
  std::vector<control::JobProblem> problems;
  const StatusOr<v1::TrainingJob> job = control::loadJob(options.file, parse, &problems);
  if (!job.ok()) {
    for (const control::JobProblem& problem : problems) console.err << problem.text() << "\n";
    if (problems.empty()) console.err << fromAbsl(job.status().message()) << "\n";
    return kExitUsage;
  }
  const StatusOr<PlanReport> report = makePlanReport(*job);
  if (!report.ok()) {
    console.err << fmt::format("{}: {}\n", options.file, fromAbsl(report.status().message()));
    return kExitUsage;
  }
  console.out << (options.output == "json" ? renderPlanJson(*report).dump(2) + "\n"
                                           : renderPlanText(*report));
  console.out.flush();
  return kExitOk;
}

// --set without '=' is a usage error of CLI11's kind.
std::string checkAssignment(const std::string& text) {
  if (text.find('=') != std::string::npos && text.front() != '=') return "";
  return fmt::format("\"{}\" is not PATH=VALUE", text);
}

}  // namespace

void registerPlan(CLI::App& app, ChosenCommand& chosen) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* plan =
      app.add_subcommand("plan", "Show which parameter server holds what, and what it costs");
  plan->add_option("-f,--file", options->file, "TrainingJob file (YAML or JSON)")->required();
  plan->add_option("--set", options->sets, "PATH=VALUE: change a field of the job; may be repeated")
      ->allow_extra_args(false)
      ->check(checkAssignment);
  plan->add_option("-o,--output", options->output, "text or json")
      ->check(CLI::IsMember({"text", "json"}));
  plan->callback([options, &chosen] {
    chosen = [options](const Console& console) { return runPlan(*options, console); };
  });
}

}  // namespace trainyard::cli
