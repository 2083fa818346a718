// `trainyard report`: runs side by side on one page.
#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/core/exit_code.h"
#include "base/core/units.h"
#include "base/process/files.h"
#include "cli/command.h"
#include "cli/jobs/find_jobs.h"
#include "cli/jobs/flags.h"
#include "cli/plan/cost_report.h"
#include "cli/report/compare.h"
#include "fmt/format.h"
#include "operator/local/run_directory.h"

namespace trainyard::cli {
namespace {

constexpr std::size_t kMaxResultBytes = 1 << 20;

struct ReportFlags {
  std::vector<std::string> runs;
  JobFlags runs_dir;
  std::string page = "report.html";
  bool text = false;
  std::string bandwidth;
  double step_seconds = 0;
};

// What the cost model says of a job on links of `bits_per_second`. Nothing where nobody says how
// long a step computes.
std::optional<double> predict(const PlanReport& plan, const v1::TrainingJob& job,
                              const ReportFlags& flags) {
  const double simulated = job.spec().training().model().simulated_step_seconds();
  const auto rate = parseBitRate(flags.bandwidth);
  if (!rate || (simulated <= 0 && flags.step_seconds <= 0)) return std::nullopt;
  runtime::CostInput input;
  input.bits_per_second = *rate;
  input.step_seconds = flags.step_seconds > 0 ? flags.step_seconds : simulated;
  return predictJob(plan, input).step;
}

StatusOr<ComparedRun> readRun(const std::string& argument, const ReportFlags& flags,
                              const Console& console) {
  TY_ASSIGN_OR_RETURN(const std::filesystem::path dir,
                      findJob(runsDir(flags.runs_dir, console), argument));
  const control::RunPaths paths{dir};
  TY_ASSIGN_OR_RETURN(const v1::TrainingJob job, control::RunRecord(paths).read());
  ComparedRun run;
  run.name = job.metadata().name();
  const auto text = readFile(paths.result(), kMaxResultBytes);
  if (!text.ok()) {
    return absl::FailedPreconditionError(
        fmt::format("{}: there is no result: the run has not ended yet", dir.string()));
  }
  auto result = resultFromJson(*text);
  TY_RETURN_IF_ERROR(annotate(result.status(), paths.result().string()));
  run.result = *std::move(result);
  run.records = readRecords(paths.dir);
  run.simulated = job.spec().training().model().simulated_step_seconds() > 0;
  if (auto plan = makePlanReport(job); plan.ok()) {
    run.predicted_step = predict(*plan, job, flags);
    run.plan = *std::move(plan);
  }
  return run;
}

int report(const ReportFlags& flags, const Console& console) {
  std::vector<ComparedRun> runs;
  for (const std::string& argument : flags.runs) {
    auto run = readRun(argument, flags, console);
    if (!run.ok()) return failVerb(console, "report", run.status());
    runs.push_back(*std::move(run));
  }
  if (flags.text) {
    console.out << renderComparisonText(runs) << std::flush;
    return kExitOk;
  }
  const Status written = writeFileAtomically(flags.page, renderComparison(runs));
  if (!written.ok()) return failVerb(console, "report", written);
  console.out << "report: " << flags.page << std::endl;
  return kExitOk;
}

std::string checkBandwidth(const std::string& text) {
  return parseBitRate(text) ? "" : fmt::format("\"{}\" is no bandwidth such as 1Gbit", text);
}

}  // namespace

void registerReport(CLI::App& app, ChosenCommand& chosen) {
  auto flags = std::make_shared<ReportFlags>();
  CLI::App* verb = app.add_subcommand("report", "Put runs side by side on one page");
  verb->add_option("run", flags->runs, "Jobs or run directories")->required();
  verb->add_option("-o,--output", flags->page, "The page to write")->capture_default_str();
  verb->add_flag("--text", flags->text, "Print the tables instead of writing the page");
  verb->add_option("--bandwidth", flags->bandwidth,
                   "Of each task's link (1Gbit): adds what the cost model foretells")
      ->check(checkBandwidth);
  verb->add_option("--step-seconds", flags->step_seconds,
                   "Seconds that a worker computes for a step (default: simulatedStepSeconds)")
      ->check(CLI::PositiveNumber);
  addRunsFlag(*verb, flags->runs_dir);
  verb->callback([flags, &chosen] {
    chosen = [flags](const Console& console) { return report(*flags, console); };
  });
}

}  // namespace trainyard::cli
