// `trainyard checkpoint inspect|digest|evaluate|export|follow DIR`.
#include <chrono>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <ostream>

#include "CLI/CLI.hpp"
#include "base/core/exit_code.h"
#include "base/core/printable.h"
#include "base/core/strings.h"
#include "base/flags/usage.h"
#include "base/process/child_process.h"
#include "base/programs/job_file.h"
#include "base/programs/runtime_program.h"
#include "cli/checkpoint_follow.h"
#include "cli/checkpoint_inspect.h"
#include "cli/command.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/step_files.h"
#include "runtime/storage/storage.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;

// An evaluation that takes longer has hung.
constexpr std::chrono::hours kEvaluationLimit{24};

struct Options {
  std::string dir;
  std::optional<std::int64_t> step;
  std::string output;
  bool slots = false;
  std::optional<std::int64_t> since;
  bool once = false;
};

struct Place {
  fs::path run_dir;       // the job directory; empty: not known (of an object store)
  std::string manifests;  // its checkpoints/
};

// Folders of an object store are not there by themselves.
Place locateRemote(std::string dir) {
  while (dir.ends_with('/')) dir.pop_back();
  const bool is_it = dir.ends_with("/checkpoints") || !runtime::listManifests(dir, nullptr).empty();
  return {.run_dir = {}, .manifests = is_it ? dir : dir + "/checkpoints"};
}

// DIR is a run directory or its checkpoints/ folder, of an object store what a job has there.
StatusOr<Place> locate(const std::string& dir) {
  if (runtime::isRemote(dir)) return locateRemote(dir);
  std::error_code error;
  const fs::path path = fs::weakly_canonical(dir, error);
  if (error || !fs::is_directory(path, error)) return invalidInput(dir, "no such directory");
  if (fs::is_directory(path / "checkpoints", error)) {
    return Place{path, (fs::path(dir) / "checkpoints").string()};
  }
  if (path.filename() == "checkpoints" || !runtime::listManifests(dir, nullptr).empty()) {
    return Place{path.parent_path(), dir};
  }
  return invalidInput(dir,
                      "holds no checkpoint: expected a run directory or its checkpoints folder");
}

struct Found {
  Place place;
  std::vector<runtime::Manifest> manifests;  // newest first, at least one
  std::vector<std::string> problems;
};

StatusOr<Found> find(const Options& options) {
  Found found;
  TY_ASSIGN_OR_RETURN(found.place, locate(options.dir));
  found.manifests = runtime::listManifests(found.place.manifests, &found.problems);
  std::vector<std::int64_t> steps;
  for (const auto& manifest : found.manifests) steps.push_back(manifest.step);
  if (options.step) {
    std::erase_if(found.manifests, [&](const auto& m) { return m.step != *options.step; });
  }
  if (!found.manifests.empty()) return found;
  if (!steps.empty()) {
    return invalidInput(found.place.manifests, fmt::format("no checkpoint of step {}; there are {}",
                                                           *options.step, fmt::join(steps, ", ")));
  }
  return invalidInput(found.place.manifests,
                      found.problems.empty()
                          ? "holds no checkpoint"
                          : fmt::format("holds no readable checkpoint: {}", found.problems[0]));
}

// One line on standard error; 2 for what the user gave us, 1 for what went wrong on the way.
int fail(const Console& console, const Status& status) {
  console.err << "trainyard: " << printable(fromAbsl(status.message())) << "\n";
  return absl::IsInvalidArgument(status) || absl::IsDataLoss(status) ? kExitUsage : kExitFailure;
}

int inspect(const Console& console, const Options& options) {
  auto found = find(options);
  if (!found.ok()) return fail(console, found.status());
  return inspectCheckpoints(console, found->place.manifests, found->manifests, found->problems,
                            systemClock().unixMillis());
}

// The checkpoint that is asked for. What cannot be read may be the newest: no other is taken in its
// place without a word.
StatusOr<Found> choose(const Options& options) {
  TY_ASSIGN_OR_RETURN(Found found, find(options));
  if (options.step || found.problems.empty()) return found;
  return absl::InvalidArgumentError(
      fmt::format("{}; give another checkpoint with --step", found.problems[0]));
}

StatusOr<runtime::CheckpointReader> openNewest(const Options& options) {
  TY_ASSIGN_OR_RETURN(const Found found, choose(options));
  return runtime::CheckpointReader::open(found.place.manifests, found.manifests[0]);
}

int digest(const Console& console, const Options& options) {
  auto reader = openNewest(options);
  if (!reader.ok()) return fail(console, reader.status());
  auto hex = runtime::checkpointDigest(*reader);
  if (!hex.ok()) return fail(console, hex.status());
  console.out << *hex << "\n";
  return kExitOk;
}

// Of a program's model with buffers, the file with those that a run goes on with from this step;
// "": there is none.
std::string buffersOf(const Console& console, const Place& place, std::int64_t step) {
  const runtime::StepFiles files = runtime::declaredBufferFiles(place.manifests);
  const auto found = files.newest(step);
  if (!found) return "";
  if (*found != step) {
    console.err << fmt::format(
        "trainyard: no buffers of step {} were kept; those of step {} are taken\n", step, *found);
  }
  return files.path(*found);
}

int exportModel(const Console& console, const Options& options) {
  const auto found = choose(options);
  if (!found.ok()) return fail(console, found.status());
  const runtime::Manifest& manifest = found->manifests[0];
  const auto reader = runtime::CheckpointReader::open(found->place.manifests, manifest);
  if (!reader.ok()) return fail(console, reader.status());
  const std::string path =
      options.output.empty() ? fmt::format("step-{}.safetensors", manifest.step) : options.output;
  const Status status = runtime::exportSafetensors(*reader, path, options.slots,
                                                   buffersOf(console, found->place, manifest.step));
  if (!status.ok()) return fail(console, status);
  console.out << path << "\n";
  return kExitOk;
}

// Of a job that cannot be read nothing is known: then all rows are handed out each time.
bool hasCommonSteps(const fs::path& run_dir) {
  if (run_dir.empty()) return false;  // an object store's checkpoints alone
  const StatusOr<v1::TrainingJob> job = readJobFile(run_dir / "job.json");
  if (!job.ok()) return false;
  const std::string& mode = job->spec().training().update().mode();
  return mode.empty() || mode == "Sync";
}

int follow(const Console& console, const Options& options) {
  const StatusOr<Place> place = locate(options.dir);
  if (!place.ok()) return fail(console, place.status());
  return followCheckpoints(console, {.manifests = place->manifests,
                                     .output = options.output,
                                     .since = options.since,
                                     .once = options.once,
                                     .by_steps = hasCommonSteps(place->run_dir)});
}

// That which reads the model of the run's job. A job that cannot be read is refused by the runtime.
StatusOr<std::string> evaluator(const Console& console, const fs::path& run_dir) {
  const std::string runtime = console.program_dir + "/trainyard-runtime";
  const StatusOr<v1::TrainingJob> job = readJobFile(run_dir / "job.json");
  if (!job.ok()) return runtime;
  return runtimeProgram(runtime, job->spec().training(), v1::ROLE_UNSPECIFIED, nullptr);
}

// The child writes to our standard output and error itself.
int evaluate(const Console& console, const Options& options) {
  auto found = choose(options);
  if (!found.ok()) return fail(console, found.status());
  if (found->place.run_dir.empty()) {
    return fail(console, invalidInput(options.dir,
                                      "the job is not there: evaluate needs a run "
                                      "directory"));
  }
  const StatusOr<std::string> program = evaluator(console, found->place.run_dir);
  if (!program.ok()) return fail(console, program.status());
  console.out.flush();
  SpawnOptions spawn;
  spawn.argv = {*program,     "evaluate",
                "--job-dir",  found->place.run_dir.string(),
                "--manifest", found->manifests[0].fileName()};
  spawn.die_with_spawning_thread = true;
  auto child = ChildProcess::spawn(spawn);
  if (!child.ok()) return fail(console, child.status());
  auto exit = child->wait(systemClock().now() + kEvaluationLimit);
  if (!exit.ok()) return fail(console, exit.status());
  // What the runtime calls bad input is a wrong file to those who gave it to us.
  if (exit->signal == 0) return exit->code == kExitBadInput ? kExitUsage : exit->code;
  return fail(console, absl::AbortedError("trainyard-runtime evaluate: " + toString(*exit)));
}

using CheckpointVerb = int (*)(const Console&, const Options&);

CLI::App* addVerb(CLI::App& parent, ChosenCommand& chosen, const std::shared_ptr<Options>& options,
                  const char* name, const char* help, CheckpointVerb verb) {
  CLI::App* app = parent.add_subcommand(name, help);
  app->add_option("DIR", options->dir,
                  "run directory, or its checkpoints folder; s3://BUCKET/PREFIX")
      ->required();
  app->add_option("--step", options->step, "the checkpoint of this step instead of the newest")
      ->check(wholeNumber(0, std::numeric_limits<long>::max()));
  app->callback([&chosen, options, verb] {
    chosen = [options, verb](const Console& console) { return verb(console, *options); };
  });
  return app;
}

void registerFollow(CLI::App& group, ChosenCommand& chosen,
                    const std::shared_ptr<Options>& options) {
  CLI::App* app = group.add_subcommand(
      "follow",
      "Write what changes from checkpoint to checkpoint, until the job ends.\n"
      "OUT/step-N.eM.safetensors has the weights, and of tables the rows that have changed and the "
      "ids of those that have gone; a line of JSON on standard output tells of each file.");
  app->add_option("DIR", options->dir,
                  "run directory, or its checkpoints folder; s3://BUCKET/PREFIX")
      ->required();
  app->add_option("-o,--output", options->output, "folder to write into")->required();
  app->add_option("--since", options->since,
                  "what there was at this step is there already (default: all rows come first)")
      ->check(wholeNumber(0, std::numeric_limits<long>::max()));
  app->add_flag("--once", options->once, "end when what there is now is written");
  app->callback([&chosen, options] {
    chosen = [options](const Console& console) { return follow(console, *options); };
  });
}

}  // namespace

void registerCheckpoint(CLI::App& app, ChosenCommand& chosen) {
  CLI::App* group = app.add_subcommand("checkpoint", "Look into the checkpoints of a run");
  group->require_subcommand(1);
  const auto options = std::make_shared<Options>();
  addVerb(*group, chosen, options, "inspect", "List checkpoints and verify their files", inspect);
  addVerb(*group, chosen, options, "digest", "SHA-256 of weights, slots and step", digest);
  addVerb(*group, chosen, options, "evaluate", "Accuracy on the job's evaluation data", evaluate);
  CLI::App* verb = addVerb(*group, chosen, options, "export",
                           "Write whole tensors into one safetensors file", exportModel);
  verb->add_option("-o,--output", options->output, "file to write (default: step-N.safetensors)");
  verb->add_flag("--slots", options->slots, "the optimizer's slots too");
  registerFollow(*group, chosen, options);
}

}  // namespace trainyard::cli
