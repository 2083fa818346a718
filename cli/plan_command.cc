#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/core/exit_code.h"
#include "base/core/strings.h"
#include "base/core/units.h"
#include "base/flags/usage.h"
#include "base/programs/runtime_program.h"
#include "cli/command.h"
#include "cli/plan/cost_flags.h"
#include "cli/plan/cost_report.h"
#include "cli/plan/plan_report.h"
#include "cli/plan/program_variables.h"
#include "cli/plan/script_variables.h"
#include "fmt/format.h"
#include "operator/job/job.h"
#include "operator/local/volumes.h"
#include "runtime/catalog/catalog.h"

namespace trainyard::cli {
namespace {

struct PlanOptions {
  std::string file;
  std::vector<std::string> sets;
  std::vector<std::string> volumes;
  bool program = false;
  std::string declared;
  std::string output = "text";
  CostFlags cost;
};

int refuse(const Console& console, const Status& status) {
  console.err << fromAbsl(status.message()) << "\n";
  return kExitUsage;
}

void print(const Console& console, const std::string& text) {
  console.out << text;
  console.out.flush();
}

// Of a model that is in no catalogue, as far as it is to be had; of others none.
StatusOr<std::vector<runtime::Variable>> unlistedVariables(const PlanOptions& options,
                                                           const v1::TrainingJob& job,
                                                           const Console& console) {
  const v1::Training& training = job.spec().training();
  const std::string runtime = console.program_dir + "/trainyard-runtime";
  const bool asked = options.program || !options.declared.empty();
  if (!runtime::isProgram(training.model())) {
    if (asked)
      return absl::InvalidArgumentError("--program, --declared: the model is no program's own");
    if (training.model().name() != "torchscript") return std::vector<runtime::Variable>();
    TY_ASSIGN_OR_RETURN(const std::string reader,
                        runtimeProgram(runtime, training, v1::ROLE_UNSPECIFIED, nullptr));
    return scriptVariables(reader, training.model().path());
  }
  // What cannot be placed is not worth a run.
  if (!asked || job.spec().strategy() == "AllReduce") return std::vector<runtime::Variable>();
  if (options.program) {
    v1::TrainingJob here = job;
    std::map<std::string, std::string> folders;
    for (const std::string& volume : options.volumes) folders.insert(splitFirst(volume, '='));
    TY_RETURN_IF_ERROR(
        control::resolveVolumes(folders, std::filesystem::current_path().string(), &here));
    return programVariables(runtime, here, console.err);
  }
  return recordedVariables(runtime, options.declared);
}

// A job: where its variables go, and where seconds are asked for, how long a step takes.
int planJob(const PlanOptions& options, const Console& console) {
  control::ParseOptions parse;
  for (const std::string& set : options.sets) {
    const auto [path, value] = splitFirst(set, '=');
    parse.overrides.emplace_back(path, value);
  }
  std::vector<control::JobProblem> problems;
  const StatusOr<v1::TrainingJob> job = control::loadJob(options.file, parse, &problems);
  if (!job.ok()) {
    for (const control::JobProblem& problem : problems) console.err << problem.text() << "\n";
    return problems.empty() ? refuse(console, job.status()) : kExitUsage;
  }
  const auto variables = unlistedVariables(options, *job, console);
  if (!variables.ok()) return refuse(console, annotate(variables.status(), options.file));
  const StatusOr<PlanReport> report = makePlanReport(*job, *variables);
  if (!report.ok()) return refuse(console, annotate(report.status(), options.file));
  const auto question =
      costQuestion(options.cost, job->spec().training().model().simulated_step_seconds());
  if (!question.ok()) return refuse(console, question.status());
  const bool json = options.output == "json";
  nlohmann::ordered_json document = json ? renderPlanJson(*report) : nlohmann::ordered_json();
  std::string text = json ? "" : renderPlanText(*report);
  if (*question) {
    const runtime::CostInput& input = (*question)->input;
    const runtime::JobSeconds seconds = predictJob(*report, input);
    if (json) document["prediction"] = renderPredictionJson(input, seconds);
    if (!json) text += "\n" + renderPredictionText(input, seconds);
    if ((*question)->comparesMachines()) {
      const CostReport cost = makeCostReport(report->model, report->parameters, input,
                                             (*question)->machines, (*question)->scale);
      if (json) document["cost"] = renderCostJson(cost);
      if (!json) text += "\n" + renderCostText(cost);
    }
  }
  print(console, json ? document.dump(2) + "\n" : text);
  return kExitOk;
}

// Trainable parameters of a built-in model with its usual input.
StatusOr<std::int64_t> catalogParameters(const std::string& name) {
  v1::Training training;
  training.mutable_model()->set_name(name);
  const runtime::InputShape input = runtime::impliedInput(training);
  const auto variables = runtime::catalogVariables(training.model(), input.shape, input.classes);
  if (!variables.ok()) {
    return absl::InvalidArgumentError(
        fmt::format("--model: {}", splitFirst(fromAbsl(variables.status().message()), ' ').second));
  }
  std::int64_t parameters = 0;
  for (const runtime::Variable& variable : *variables)
    parameters += variable.trainable ? variable.elements() : 0;
  return parameters;
}

// No job, only a model's size: how machines are best used.
int planMachines(const PlanOptions& options, const Console& console) {
  const auto question = costQuestion(options.cost, 0);
  if (!question.ok()) return refuse(console, question.status());
  if (!*question || !(*question)->comparesMachines()) {
    return refuse(console, absl::InvalidArgumentError(
                               "--machines or --scale: missing, such as --machines 16"));
  }
  StatusOr<std::int64_t> parameters = 0;
  if (!options.cost.model.empty()) {
    parameters = catalogParameters(options.cost.model);
  } else {
    parameters = *parseCount(options.cost.parameters);
  }
  if (!parameters.ok()) return refuse(console, parameters.status());
  const CostReport cost = makeCostReport(options.cost.model, *parameters, (*question)->input,
                                         (*question)->machines, (*question)->scale);
  if (options.output == "json") {
    print(console, nlohmann::ordered_json{{"cost", renderCostJson(cost)}}.dump(2) + "\n");
  } else {
    print(console, renderCostText(cost));
  }
  return kExitOk;
}

int runPlan(const PlanOptions& options, const Console& console) {
  const int subjects = int(!options.file.empty()) + int(!options.cost.model.empty()) +
                       int(!options.cost.parameters.empty());
  if (subjects != 1) {
    return refuse(console, absl::InvalidArgumentError(
                               fmt::format("-f: {} one of -f FILE, --model NAME and --parameters N",
                                           subjects == 0 ? "needs" : "only")));
  }
  return options.file.empty() ? planMachines(options, console) : planJob(options, console);
}

}  // namespace

void registerPlan(CLI::App& app, ChosenCommand& chosen) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* plan =
      app.add_subcommand("plan", "Show which parameter server holds what, and what it costs");
  plan->add_option("-f,--file", options->file, "TrainingJob file (YAML or JSON)");
  plan->add_option("--set", options->sets, "PATH=VALUE: change a field of the job; may be repeated")
      ->allow_extra_args(false)
      ->check(assignment("PATH=VALUE"));
  CLI::Option* program = plan->add_flag(
      "--program", options->program,
      "Run the job's own program until it has declared its model, which is then planned");
  plan->add_option(
          "--volume", options->volumes,
          "NAME=DIR: with --program, folder to use for a volume of the job; may be repeated")
      ->allow_extra_args(false)
      ->needs(program)
      ->check(assignment("NAME=DIR"));
  plan->add_option("--declared", options->declared,
                   "Plan the model that the program has declared in a run: its directory")
      ->excludes(program);
  plan->add_option("-o,--output", options->output, "text or json")
      ->check(CLI::IsMember({"text", "json"}));
  addCostFlags(*plan, options->cost);
  plan->callback([options, &chosen] {
    chosen = [options](const Console& console) { return runPlan(*options, console); };
  });
}

}  // namespace trainyard::cli
