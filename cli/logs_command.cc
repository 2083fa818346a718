// `trainyard logs JOB [TASK]`.
#include <memory>
#include <ostream>
#include <set>
#include <string>

#include "CLI/CLI.hpp"
#include "base/core/exit_code.h"
#include "base/core/strings.h"
#include "cli/command.h"
#include "cli/jobs/choose_source.h"
#include "cli/jobs/flags.h"
#include "cli/jobs/task_logs.h"
#include "cli/live/text.h"
#include "fmt/format.h"
#include "operator/cluster/task_keys.h"

namespace trainyard::cli {
namespace {

constexpr std::int64_t kTailOfAll = 10;

struct LogsFlags {
  JobFlags job;
  std::string task;
  std::int64_t tail = -1;
  bool follow = false;
  bool all = false;
};

// All of one task, the last lines of several, as kubectl does it.
std::optional<std::int64_t> tailOf(const LogsFlags& flags) {
  if (flags.all) return std::nullopt;
  if (flags.tail >= 0) return flags.tail;
  return flags.task.empty() ? std::optional(kTailOfAll) : std::nullopt;
}

// "ps-0 to ps-1", "worker-0", "worker-0,2-3".
std::string namesOf(std::string_view role, const std::set<std::uint32_t>& indices) {
  const std::string text = control::formatIndices(indices);
  const auto [first, last] = splitFirst(text, '-');
  const bool range = indices.size() > 1 && text.find(',') == std::string::npos;
  return range ? fmt::format("{0}-{1} to {0}-{2}", role, first, last)
               : fmt::format("{}-{}", role, text);
}

Status checkTask(const LogsFlags& flags, const JobView& job) {
  if (flags.task.empty()) return absl::OkStatus();
  if (flags.task == "launcher" && !job.inCluster()) return absl::OkStatus();
  std::set<std::uint32_t> servers, workers;
  for (const control::TaskKey& key : control::wantedTasks(job.job)) {
    if (control::toString(key) == flags.task) return absl::OkStatus();
    (key.role == v1::ROLE_PS ? servers : workers).insert(key.index);
  }
  return absl::InvalidArgumentError(fmt::format(
      "'{}' has no task '{}': it has {}{}", job.name, flags.task,
      servers.empty() ? "" : namesOf("ps", servers) + " and ", namesOf("worker", workers)));
}

std::string shown(const std::string& task, const std::string& line, bool prefix, bool colour) {
  if (!prefix) return line;
  const std::string text = withPrefix(task, line);
  const std::size_t end = text.starts_with('[') ? text.find(']') + 1 : 0;
  const Tone tone = task.starts_with("ps-")       ? Tone::kAccent
                    : task.starts_with("worker-") ? Tone::kGood
                                                  : Tone::kWarn;
  return paint(text.substr(0, end), tone, colour) + text.substr(end);
}

int logs(const LogsFlags& flags, const Console& console) {
  const auto fail = [&](const Status& status) { return failVerb(console, "logs", status); };
  const auto source = chooseSource(flags.job, console);
  if (!source.ok()) return fail(source.status());
  const auto job = (*source)->read(flags.job.job);
  if (!job.ok()) return fail(job.status());
  if (const Status known = checkTask(flags, *job); !known.ok()) return fail(known);
  bool any = false;
  LogPrinter print;
  print.line = [&](const std::string& task, const std::string& line) {
    any = true;
    console.out << shown(task, line, flags.task.empty(), console.colour) << "\n";
  };
  print.flush = [&] {
    console.out.flush();
    return console.out.good();
  };
  const Status read = (*source)->logs(*job, {flags.task, tailOf(flags), flags.follow}, print);
  if (!read.ok()) return fail(read);
  if (!any) {
    console.err << fmt::format("No log lines yet: '{}' is {}.", job->name, job->state) << std::endl;
  }
  return kExitOk;
}

constexpr char kLogsFooter[] =
    "Without TASK: the last 10 lines of every task (and of the launcher of a detached job), put "
    "together\n"
    "by time. With -f it ends by itself when the job does, or is suspended; restarts do not end "
    "it. A cluster has the logs of pods that are there; what a lost task logged is gone with its "
    "pod.\n\n"
    "Examples:\n"
    "  trainyard logs fashion -f\n"
    "  trainyard logs fashion worker-0 --tail 100\n"
    "  trainyard logs fashion launcher -f      # what `trainyard run` prints\n"
    "  trainyard logs fashion -f -n lab        # a job of a cluster";

}  // namespace

void registerLogs(CLI::App& app, ChosenCommand& chosen) {
  auto flags = std::make_shared<LogsFlags>();
  CLI::App* verb = app.add_subcommand("logs", "Print what the tasks of a job log");
  addJobFlags(*verb, flags->job);
  verb->add_option("TASK", flags->task, "ps-0, worker-1, ..., or launcher; default: all");
  verb->add_flag("-f,--follow", flags->follow, "Go on until the job is over");
  auto* tail =
      verb->add_option("--tail", flags->tail, "Last lines of each (default: 10, all with TASK)")
          ->check(CLI::NonNegativeNumber);
  verb->add_flag("--all", flags->all, "All lines, from the job's beginning")->excludes(tail);
  verb->footer(kLogsFooter);
  verb->callback([flags, &chosen] {
    chosen = [flags](const Console& console) { return logs(*flags, console); };
  });
}

}  // namespace trainyard::cli
