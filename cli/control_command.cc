// `trainyard scale`, `suspend`, `resume`, `delete`.
#include <cstdint>
#include <istream>
#include <memory>
#include <ostream>
#include <string>

#include "CLI/CLI.hpp"
#include "base/core/exit_code.h"
#include "cli/command.h"
#include "cli/jobs/choose_source.h"
#include "cli/jobs/flags.h"
#include "fmt/format.h"

namespace trainyard::cli {
namespace {

struct ControlFlags {
  JobFlags job;
  std::int64_t ps = -1, workers = -1;  // of scale; below 0: as they are
  double timeout = 120;                // seconds
  bool no_wait = false;
  bool yes = false;
  bool now = false;
  LauncherOptions launcher;

  Waiting waiting() const { return {!no_wait, fromSeconds(timeout)}; }
};

int tell(const Console& console, const char* verb, const StatusOr<std::string>& message) {
  if (!message.ok()) return failVerb(console, verb, message.status());
  console.out << *message << std::endl;
  return kExitOk;
}

int suspend(const ControlFlags& flags, const Console& console) {
  const auto jobs = chooseSource(flags.job, console);
  if (!jobs.ok()) return failVerb(console, "suspend", jobs.status());
  return tell(console, "suspend", (*jobs)->suspend(flags.job.job, flags.waiting()));
}

int scale(const ControlFlags& flags, const Console& console) {
  const auto jobs = chooseSource(flags.job, console);
  if (!jobs.ok()) return failVerb(console, "scale", jobs.status());
  Replicas replicas;
  if (flags.ps >= 0) replicas.ps = flags.ps;
  if (flags.workers >= 0) replicas.workers = flags.workers;
  if (!replicas.ps && !replicas.workers) {
    return failVerb(console, "scale",
                    absl::InvalidArgumentError("how many? Give --workers, --ps or both"));
  }
  return tell(console, "scale", (*jobs)->scale(flags.job.job, replicas, flags.waiting()));
}

Status onlyInCluster(const ControlFlags& flags) {
  if (flags.job.cluster.given() || !flags.no_wait) return absl::OkStatus();
  return absl::InvalidArgumentError("--no-wait is for jobs of a cluster (-n, --cluster)");
}

int resume(const ControlFlags& flags, const Console& console) {
  if (const Status fits = onlyInCluster(flags); !fits.ok()) {
    return failVerb(console, "resume", fits);
  }
  const auto jobs = chooseSource(flags.job, console, flags.launcher);
  if (!jobs.ok()) return failVerb(console, "resume", jobs.status());
  const auto resumed = (*jobs)->resume(flags.job.job, flags.waiting());
  if (!resumed.ok()) return failVerb(console, "resume", resumed.status());
  if (!resumed->text.empty()) console.out << resumed->text << std::endl;
  return resumed->code;
}

Status confirm(const Doomed& doomed, const Console& console) {
  if (console.in == nullptr) {
    return absl::InvalidArgumentError("nobody can be asked here: give --yes to delete " +
                                      doomed.shown);
  }
  console.out << fmt::format("Delete {} with {}? [y/N] ", doomed.shown, doomed.goes) << std::flush;
  std::string answer;
  std::getline(*console.in, answer);
  if (answer == "y" || answer == "Y" || answer == "yes") return absl::OkStatus();
  return absl::CancelledError("nothing is deleted");
}

int deleteOne(const ControlFlags& flags, const Console& console) {
  Status fits = onlyInCluster(flags);
  if (flags.now && flags.job.cluster.given()) {
    fits = absl::InvalidArgumentError("--now is for local jobs: pods end as their template says");
  }
  if (!fits.ok()) return failVerb(console, "delete", fits);
  const auto jobs = chooseSource(flags.job, console);
  if (!jobs.ok()) return failVerb(console, "delete", jobs.status());
  const auto doomed = (*jobs)->toRemove(flags.job.job);
  if (!doomed.ok()) return failVerb(console, "delete", doomed.status());
  if (!flags.yes) {
    if (const Status sure = confirm(*doomed, console); !sure.ok()) {
      return failVerb(console, "delete", sure);
    }
  }
  return tell(console, "delete", (*jobs)->remove(*doomed, {flags.now, flags.waiting()}));
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
    "New tasks join at a step boundary, the others go on meanwhile; those of the highest numbers "
    "leave\nafter a step. Parameter servers hand their part of the model to each other, and ps-0 "
    "stays. Nothing\nis started again and no sample is lost or used twice. Waits until the job "
    "runs "
    "with so many; a job\nat rest starts with them.";
constexpr char kSuspendFooter[] =
    "Waits until the job has taken a checkpoint and all its processes have ended. Suspending twice "
    "is\n"
    "no failure; suspending a job that has ended is one (exit code 1).";
constexpr char kResumeFooter[] =
    "The job goes on from its newest checkpoint. A local one: in its launcher where that is still "
    "there,\n"
    "else in the background, as with `trainyard run --detach`. `trainyard run` with the job's file "
    "resumes\n"
    "it in the foreground, and may change its steps. Also for local jobs that were interrupted or "
    "have\n"
    "failed.";
constexpr char kDeleteFooter[] =
    "Ends the job if it runs, and removes its directory with checkpoints and logs. A directory "
    "that "
    "holds\n"
    "anything that no run has made stays as it is. A cluster's job goes with its pods; what is in "
    "its\n"
    "volumes stays.";

}  // namespace

void registerControl(CLI::App& app, ChosenCommand& chosen) {
  Added verb =
      addVerb(app, chosen, "scale", "Change the number of a job's tasks", kScaleFooter, scale);
  verb.app->add_option("--workers", verb.flags->workers, "How many workers the job is to have")
      ->check(CLI::NonNegativeNumber);
  verb.app->add_option("--ps", verb.flags->ps, "How many parameter servers the job is to have")
      ->check(CLI::NonNegativeNumber);
  verb.app->add_flag("--no-wait", verb.flags->no_wait, "Only record the number");
  addTimeout(verb);
  verb = addVerb(app, chosen, "suspend", "Stop a job with a checkpoint", kSuspendFooter, suspend);
  verb.app->add_flag("--no-wait", verb.flags->no_wait, "Only record that the job should stop");
  addTimeout(verb);
  verb = addVerb(app, chosen, "resume", "Go on with a job that was stopped", kResumeFooter, resume);
  verb.app->add_flag("--no-wait", verb.flags->no_wait,
                     "Only record that the job should go on (of a cluster)");
  addTimeout(verb);
  verb.app->add_option("--agent", verb.flags->launcher.agent)->group("");
  verb.app->add_option("--runtime", verb.flags->launcher.runtime)->group("");
  verb = addVerb(app, chosen, "delete", "End a job and remove it", kDeleteFooter, deleteOne);
  verb.app->add_flag("-y,--yes", verb.flags->yes, "Do not ask");
  verb.app->add_flag("--now", verb.flags->now,
                     "Kill its processes instead of letting them end (of a local job)");
  verb.app->add_flag("--no-wait", verb.flags->no_wait,
                     "Do not wait until its pods are gone (of a cluster)");
  addTimeout(verb);
}

}  // namespace trainyard::cli
