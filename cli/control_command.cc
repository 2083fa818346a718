// `trainyard scale`, `suspend`, `resume`, `delete`: local jobs, through their run directory.
#include <cstdint>
#include <istream>
#include <memory>
#include <ostream>
#include <string>

#include "base/core/exit_code.h"
#include "cli/command.h"
#include "cli/jobs/control.h"
#include "cli/jobs/find_jobs.h"
#include "cli/jobs/flags.h"
#include "cli/jobs/job_view.h"
#include "cli/jobs/patience.h"
#include "cli/run/detach.h"
#include "fmt/format.h"
#include "operator/local/run_directory.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;

struct ControlFlags {
  JobFlags job;
  std::int64_t workers = 0;  // of scale
  double timeout = 120;      // seconds
  bool no_wait = false;
  bool yes = false;
  bool now = false;
  LauncherOptions launcher;
};

// How long a launcher may take to end a job that is deleted: its tasks have 10 s.
constexpr Duration kDeleteGrace = std::chrono::seconds(15);

int tell(const Console& console, const char* verb, const StatusOr<std::string>& message) {
  if (!message.ok()) return failVerb(console, verb, message.status());
  console.out << *message << std::endl;
  return kExitOk;
}

int suspend(const ControlFlags& flags, const Console& console) {
  const auto dir = findJob(runsDir(flags.job, console), flags.job.job);
  if (!dir.ok()) return failVerb(console, "suspend", dir.status());
  return tell(console, "suspend",
              suspendJob(*dir, !flags.no_wait, fromSeconds(flags.timeout), *console.clock));
}

int scale(const ControlFlags& flags, const Console& console) {
  const auto dir = findJob(runsDir(flags.job, console), flags.job.job);
  if (!dir.ok()) return failVerb(console, "scale", dir.status());
  return tell(
      console, "scale",
      scaleJob(*dir, flags.workers, !flags.no_wait, fromSeconds(flags.timeout), *console.clock));
}

// Takes the wish to stop back. A launcher that is still there then goes on.
Status clearSuspend(const fs::path& dir, const Clock& clock) {
  return control::RunRecord(control::RunPaths{dir}).edit(clock, [](v1::TrainingJob* job) {
    if (!job->spec().run_policy().suspend()) return false;
    job->mutable_spec()->mutable_run_policy()->set_suspend(false);
    return true;
  });
}

int resume(const ControlFlags& flags, const Console& console) {
  const auto fail = [&](const Status& status) { return failVerb(console, "resume", status); };
  const auto dir = findJob(runsDir(flags.job, console), flags.job.job);
  if (!dir.ok()) return fail(dir.status());
  const Duration limit = fromSeconds(flags.timeout);
  const Patience patience(*console.clock, limit);
  for (bool asked = false;;) {
    const auto job = readJob(*dir);
    if (!job.ok()) return fail(job.status());
    if (!job->launcher) {
      auto run = reopenRun(dir->string(), *console.clock);
      if (run.ok()) {
        LauncherOptions launcher = flags.launcher;
        launcher.shown_dir = dir->string();
        return runDetached(launcher, *std::move(run), limit, console);
      }
      // Somebody else has come to look after it.
      if (!absl::IsFailedPrecondition(run.status())) return fail(run.status());
    } else if (job->state == "Terminating" || job->state == "Succeeded") {
      return fail(absl::FailedPreconditionError(
          fmt::format("'{}' {}", job->name,
                      job->state == "Succeeded" ? "has finished already" : "is being deleted")));
    } else if (job->job.spec().run_policy().suspend()) {
      if (const Status status = clearSuspend(*dir, *console.clock); !status.ok()) {
        return fail(status);
      }
      asked = true;
    } else if (job->state == "Running" || job->state == "Restarting") {
      return tell(console, "resume",
                  fmt::format("{} {}: process {}", job->name,
                              asked ? "goes on" : "is running already", *job->launcher));
    }
    if (!patience.wait()) {
      return fail(absl::DeadlineExceededError(fmt::format(
          "'{}' does not run after {:.0f} s; it is {}", job->name, toSeconds(limit), job->state)));
    }
  }
}

Status confirm(const fs::path& dir, const Console& console) {
  if (console.in == nullptr) {
    return absl::InvalidArgumentError("nobody can be asked here: give --yes to delete " +
                                      dir.string());
  }
  console.out << fmt::format("Delete {} with its checkpoints and logs? [y/N] ", dir.string())
              << std::flush;
  std::string answer;
  std::getline(*console.in, answer);
  if (answer == "y" || answer == "Y" || answer == "yes") return absl::OkStatus();
  return absl::CancelledError("nothing is deleted");
}

int deleteOne(const ControlFlags& flags, const Console& console) {
  const auto dir = findJob(runsDir(flags.job, console), flags.job.job);
  if (!dir.ok()) return failVerb(console, "delete", dir.status());
  if (!flags.yes) {
    if (const Status sure = confirm(*dir, console); !sure.ok()) {
      return failVerb(console, "delete", sure);
    }
  }
  return tell(console, "delete",
              deleteJob(*dir, flags.now ? Duration::zero() : kDeleteGrace, *console.clock));
}

using Verb = int (*)(const ControlFlags&, const Console&);

struct Added {
  CLI::App* app;
  std::shared_ptr<ControlFlags> flags;
};

Added addVerb(CLI::App& parent, ChosenCommand& chosen, const char* name, const char* help,
              const char* footer, Verb verb) {
  const auto flags = std::make_shared<ControlFlags>();
  CLI::App* app = parent.add_subcommand(name, help);
  addJobFlags(*app, flags->job);
  app->footer(footer);
  app->callback([&chosen, flags, verb] {
    chosen = [flags, verb](const Console& console) { return verb(*flags, console); };
  });
  return {app, flags};
}

void addTimeout(const Added& verb) {
  verb.app->add_option("--timeout", verb.flags->timeout, "Seconds to wait (default: 120)")
      ->check(CLI::PositiveNumber);
}

constexpr char kScaleFooter[] =
    "New workers join at a step boundary, the others go on meanwhile; workers of the highest "
    "numbers "
    "\nleave after their step. Nothing is started again and no sample is lost or used twice. Waits "
    "until\nthe job runs with so many workers; a job at rest starts with them.";
constexpr char kSuspendFooter[] =
    "Waits until the job has taken a checkpoint and all its processes have ended. Suspending twice "
    "is\n"
    "no failure; suspending a job that has ended is one (exit code 1).";
constexpr char kResumeFooter[] =
    "The job goes on from its newest checkpoint: in its launcher where that is still there, else "
    "in "
    "the\n"
    "background, as with `trainyard run --detach`. `trainyard run` with the job's file resumes it "
    "in the\n"
    "foreground, and may change its steps. Also for jobs that were interrupted or have failed.";
constexpr char kDeleteFooter[] =
    "Ends the job if it runs, and removes its directory with checkpoints and logs. A directory "
    "that "
    "holds\n"
    "anything that no run has made stays as it is.";

}  // namespace

void registerControl(CLI::App& app, ChosenCommand& chosen) {
  Added verb =
      addVerb(app, chosen, "scale", "Change the number of a job's workers", kScaleFooter, scale);
  verb.app->add_option("--workers", verb.flags->workers, "How many workers the job is to have")
      ->required();
  verb.app->add_flag("--no-wait", verb.flags->no_wait, "Only record the number");
  addTimeout(verb);
  verb = addVerb(app, chosen, "suspend", "Stop a local job with a checkpoint", kSuspendFooter,
                 suspend);
  verb.app->add_flag("--no-wait", verb.flags->no_wait, "Only record that the job should stop");
  addTimeout(verb);
  verb = addVerb(app, chosen, "resume", "Go on with a local job that was stopped", kResumeFooter,
                 resume);
  addTimeout(verb);
  verb.app->add_option("--agent", verb.flags->launcher.agent)->group("");
  verb.app->add_option("--runtime", verb.flags->launcher.runtime)->group("");
  verb = addVerb(app, chosen, "delete", "End a local job and remove its directory", kDeleteFooter,
                 deleteOne);
  verb.app->add_flag("-y,--yes", verb.flags->yes, "Do not ask");
  verb.app->add_flag("--now", verb.flags->now, "Kill its processes instead of letting them end");
}

}  // namespace trainyard::cli
