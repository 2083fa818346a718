#include "cli/run/directory.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <system_error>

#include "base/core/printable.h"
#include "base/core/rfc3339.h"
#include "base/core/strings.h"
#include "base/process/new_file.h"
#include "base/rpc/token.h"
#include "base/security/random.h"
#include "cli/run/programs.h"
#include "fmt/format.h"
#include "operator/job/job.h"
#include "operator/job/template.h"
#include "operator/local/volumes.h"
#include "runtime/checkpoint/checkpoint.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxFileBytes = 16 << 20;
constexpr std::size_t kTokenBytes = 32;
constexpr std::size_t kUidBytes = 16;
constexpr std::uintmax_t kMinFreeBytes = 1 << 20;

const std::set<std::string>& ownFiles() {
  static const std::set<std::string> names = {
      "job.json",     "job.yaml",      "status.json",   "membership.json",
      "events.jsonl", "token",         "lock",          "environment.json",
      "edit.lock",    "launcher.log",  "metrics.jsonl", "metrics.former.jsonl",
      "result.json",  "traffic.jsonl", "timeline.json", "prometheus.json",
      "report.html"};
  return names;
}

constexpr std::string_view kOwnFolders[] = {"checkpoints", "events", "tasks", "records",
                                            "records/events"};

bool isOwnFolder(std::string_view name) {
  return std::find(std::begin(kOwnFolders), std::end(kOwnFolders), name) != std::end(kOwnFolders);
}

// The name of the file that one called `name` is, or is to become: another process may be writing
// it, or was killed while it did.
std::string finalName(const std::string& name) {
  if (const auto whole = madeFor(name)) return *whole;
  constexpr std::string_view kUnfinished = ".tmp";
  return name.substr(0, name.size() - (name.ends_with(kUnfinished) ? kUnfinished.size() : 0));
}

// What may change between two launches of a run.
constexpr std::string_view kMayChange[] = {"training.evaluateEverySteps",
                                           "training.checkpoint",
                                           "runPolicy",
                                           "network",
                                           "image",
                                           "ps.replicas",
                                           "ps.minReplicas",
                                           "worker.replicas",
                                           "worker.minReplicas",
                                           "worker.maxReplicas"};

// The length of a run may only grow.
bool isLength(std::string_view path) {
  return path == "training.steps" || path == "training.passes";
}

bool isWithin(std::string_view path, std::string_view field) {
  return path.starts_with(field) && (path.size() == field.size() || path[field.size()] == '.');
}

bool mayChange(const FieldChange& change) {
  if (isLength(change.path)) {
    const auto before = parseNumber<std::int64_t>(change.before);
    const auto after = parseNumber<std::int64_t>(change.after);
    return before && after && *after >= *before;
  }
  return std::any_of(std::begin(kMayChange), std::end(kMayChange),
                     [&](std::string_view field) { return isWithin(change.path, field); });
}

// Checkpoints are the same with and without parameter servers: a run may go on the other way.
bool isOfStrategy(const FieldChange& change) {
  return change.path == "strategy" || isWithin(change.path, "ps");
}

std::string valueText(const Json& json) {
  if (json.is_null()) return "nothing";
  return json.is_string() ? json.get<std::string>() : json.dump();
}

void compare(const std::string& path, const Json& before, const Json& after,
             std::vector<FieldChange>* changes) {
  if (before == after) return;
  if (!before.is_object() || !after.is_object()) {
    changes->push_back({path, valueText(before), valueText(after)});
    return;
  }
  const std::string prefix = path.empty() ? "" : path + ".";
  for (const auto& [name, value] : before.items()) {
    compare(prefix + name, value, after.contains(name) ? after[name] : Json(), changes);
  }
  for (const auto& [name, value] : after.items()) {
    if (!before.contains(name)) compare(prefix + name, Json(), value, changes);
  }
}

bool isOfCheckpoints(std::string_view name) {
  return name.ends_with(".json") || name.ends_with(".safetensors") ||
         (name.starts_with("buffers.step-") && name.ends_with(".pt")) ||
         (name.starts_with("program-state.step-") && name.ends_with(".bin"));
}

// Whether an entry of one of our folders is of our making.
bool isOwnInside(std::string_view folder, std::string_view name) {
  if (folder == "checkpoints") return isOfCheckpoints(name);
  if (folder.ends_with("events")) return name.find("tfevents") != std::string_view::npos;
  if (folder == "records") return name == "metrics.jsonl" || name == "events";
  return name.starts_with("ps-") || name.starts_with("worker-");
}

Status refuseForeign(const DirectoryOptions& options) {
  const std::string foreign = foreignEntry(options.dir);
  if (foreign.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{}: holds '{}', which no run has made: give another directory with --dir",
                  options.dir, foreign));
}

// Removes what runs leave; the lock stays, for we hold it.
Status removeOwn(const fs::path& dir) {
  for (const auto& entry : fs::directory_iterator(dir)) {
    if (entry.path().filename() == "lock") continue;
    std::error_code error;
    fs::remove_all(entry.path(), error);
    if (error) return errnoStatus(error.value(), entry.path().string());
  }
  return absl::OkStatus();
}

// Folders of ours that are none any more would make the tasks fail, or not even start.
Status checkFolders(const control::RunPaths& paths) {
  std::vector<fs::path> folders = {paths.checkpoints(), paths.dir / "events", paths.tasks()};
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(paths.tasks(), error)) {
    folders.push_back(entry.path());
  }
  for (const fs::path& folder : folders) {
    const fs::file_status status = fs::status(folder, error);
    if (fs::exists(status) && !fs::is_directory(status)) {
      return invalidInput(folder.string(), "is no folder: remove it, or start over with --new");
    }
  }
  return absl::OkStatus();
}

// What the tasks would stumble over one after the other, where the record of a run is damaged.
Status checkRecord(const control::RunPaths& paths) {
  TY_RETURN_IF_ERROR(checkFolders(paths));
  TY_RETURN_IF_ERROR(readToken(paths.token()).status());
  const control::RunRecord record(paths);
  TY_RETURN_IF_ERROR(record.read().status());
  return record.readMembership().status();
}

// Errors of the file itself stay what they are.
StatusOr<FileLock> lockDirectory(const control::RunPaths& paths) {
  auto lock = FileLock::acquire(paths.lock());
  if (!absl::IsFailedPrecondition(lock.status())) return lock;
  return annotate(lock.status(), "another run uses the directory");
}

// What the files of a launch and its first checkpoints need beside the weights. A launcher that
// cannot record what happens waits for space instead of ending.
Status checkSpace(const fs::path& dir) {
  std::error_code error;
  const fs::space_info space = fs::space(dir, error);
  if (error || space.available >= kMinFreeBytes) return absl::OkStatus();
  return invalidInput(dir.string(), fmt::format("{} bytes are free on its disk, a run needs {}",
                                                space.available, kMinFreeBytes));
}

StatusOr<v1::TrainingJob> readYaml(const fs::path& path) {
  TY_ASSIGN_OR_RETURN(const std::string text, readFile(path, kMaxFileBytes));
  std::vector<control::JobProblem> problems;
  return control::parseJob(text, path.string(), {}, &problems);
}

Status checkSameJob(const control::RunPaths& paths, const v1::TrainingJob& job) {
  TY_ASSIGN_OR_RETURN(const v1::TrainingJob recorded, control::RunRecord(paths).read());
  TY_RETURN_IF_ERROR(checkNotDeleted(paths.dir.string(), recorded));
  TY_ASSIGN_OR_RETURN(const v1::TrainingJob before, readYaml(paths.jobYaml()));
  if (before.metadata().name() != job.metadata().name()) {
    return absl::InvalidArgumentError(
        fmt::format("metadata.name: {} holds job '{}', not '{}': give another directory with --dir",
                    paths.dir.string(), before.metadata().name(), job.metadata().name()));
  }
  const std::vector<FieldChange> changes =
      forbiddenChanges(toJson(before.spec()), toJson(job.spec()));
  if (changes.empty()) return absl::OkStatus();
  const FieldChange& first = changes.front();
  const bool shrinks =
      isLength(first.path) && first.before != valueText(Json()) && first.after != valueText(Json());
  return absl::InvalidArgumentError(fmt::format(
      "{}: {} in {}, now {}: it {}; start over with --new, or give another directory with --dir",
      first.path, first.before, paths.jobYaml().string(), first.after,
      shrinks ? "may only grow" : "cannot change in a run that was begun"));
}

// The result of a run that has come to its end, unless it is to go on now.
StatusOr<std::optional<RunResult>> finishedResult(const control::RunPaths& paths,
                                                  const v1::TrainingJob& job) {
  const std::optional<RunResult> nothing;
  const auto text = readFile(paths.result(), kMaxFileBytes);
  if (!text.ok()) return nothing;
  auto result = resultFromJson(*text);
  if (!result.ok() || result->outcome != "succeeded") return nothing;
  const v1::Training& training = job.spec().training();
  if (training.has_steps() && training.steps() > result->steps.value_or(0)) return nothing;
  TY_ASSIGN_OR_RETURN(const v1::TrainingJob before, readYaml(paths.jobYaml()));
  if (training.passes() > before.spec().training().passes()) return nothing;
  return std::optional(*std::move(result));
}

// The newest checkpoint that the job can go on from, as ps-0 will choose it. What stands in the way
// of newer ones goes to `left_out`.
std::optional<runtime::Manifest> newestUsable(const std::string& dir, const std::string& uid,
                                              std::vector<std::string>* left_out) {
  for (const runtime::Manifest& manifest : runtime::listManifests(dir, left_out)) {
    Status usable = runtime::verifyFiles(dir, manifest);
    if (usable.ok() && manifest.job_uid != uid) {
      usable = invalidInput(fmt::format("{}/{}", dir, manifest.fileName()), "is of another job");
    }
    if (usable.ok()) return manifest;
    left_out->push_back(std::string(fromAbsl(usable.message())));
  }
  return std::nullopt;
}

std::string resumeHeadline(const control::RunPaths& paths, const v1::TrainingJob& job,
                           std::vector<std::string>* warnings) {
  if (control::isForeign(job)) {
    return fmt::format("starting '{}' again in {}", job.metadata().name(), paths.dir.string());
  }
  std::vector<std::string> left_out;
  const auto newest = newestUsable(paths.checkpoints().string(), job.metadata().uid(), &left_out);
  for (const std::string& problem : left_out) {
    warnings->push_back(fmt::format("a checkpoint is left out: {}", printable(problem)));
  }
  const std::string& name = job.metadata().name();
  if (!newest || newest->step == 0) {
    return fmt::format("starting '{}' again from step 0: {} holds no later checkpoint", name,
                       paths.dir.string());
  }
  const v1::Training& training = job.spec().training();
  std::string whole;
  if (training.has_steps()) whole = fmt::format(" of {}", training.steps());
  if (training.has_passes() && newest->data_samples > 0) {
    whole = fmt::format(
        ", after {:.1f} of {} passes",
        static_cast<double>(newest->position) / static_cast<double>(newest->data_samples),
        training.passes());
  }
  return fmt::format("resuming '{}' from step {}{}", name, newest->step, whole);
}

// Weights of this run's own directory would be removed before they could be read.
Status checkInitFrom(const control::RunPaths& paths, const v1::TrainingJob& job) {
  const std::string& from = job.spec().training().init_from();
  if (from.empty()) return absl::OkStatus();
  std::error_code ignored;
  const fs::path inside =
      fs::weakly_canonical(from, ignored)
          .lexically_relative(fs::weakly_canonical(fs::absolute(paths.dir, ignored), ignored));
  if (inside.empty() || *inside.begin() == "..") return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("training.initFrom: {} lies in the run's own directory {}: give another "
                  "directory with --dir",
                  from, paths.dir.string()));
}

// Whether --new may be followed, or nothing of a run is there yet.
StatusOr<bool> startsFresh(const DirectoryOptions& options, const control::RunPaths& paths) {
  std::error_code ignored;
  const bool recorded = fs::exists(paths.job(), ignored);
  if (!recorded || options.start_anew) {
    TY_RETURN_IF_ERROR(refuseForeign(options));
    TY_RETURN_IF_ERROR(removeOwn(paths.dir));
  }
  return !recorded || options.start_anew;
}

void removeResult(const control::RunPaths& paths) {
  std::error_code ignored;
  fs::remove(paths.result(), ignored);
  fs::remove(paths.report(), ignored);
}

// Writes job.yaml as given and job.json as the tasks need it; job.json comes last and makes the
// record whole.
Status record(const DirectoryOptions& options, const control::RunPaths& paths, bool fresh,
              const v1::TrainingJob& given, const Clock& clock, v1::TrainingJob* job) {
  TY_RETURN_IF_ERROR(control::resolveVolumes(options.volumes, options.cwd, job));
  v1::ObjectMeta& meta = *job->mutable_metadata();
  control::RunRecord record(paths);
  const std::string yaml = control::toYaml(toJson(given));
  removeResult(paths);  // before job.yaml: a result is that of the job beside it
  if (fresh) {
    meta.set_uid(randomHex(kUidBytes));
    meta.set_generation(1);
    meta.set_creation_timestamp(formatRfc3339(clock.unixMillis()));
    TY_RETURN_IF_ERROR(writeFileAtomically(paths.token(), randomHex(kTokenBytes) + "\n", 0600));
    TY_RETURN_IF_ERROR(writeFileAtomically(paths.jobYaml(), yaml));
    TY_RETURN_IF_ERROR(record.writeSpec(*job));
    return record.restStatus();
  }
  TY_RETURN_IF_ERROR(writeFileAtomically(paths.jobYaml(), yaml));
  TY_RETURN_IF_ERROR(record.edit(clock, [&](v1::TrainingJob* recorded) {
    v1::ObjectMeta kept = job->metadata();
    kept.set_uid(recorded->metadata().uid());
    kept.set_generation(recorded->metadata().generation());
    kept.set_creation_timestamp(recorded->metadata().creation_timestamp());
    *recorded->mutable_metadata() = kept;
    *recorded->mutable_spec() = job->spec();
    return true;
  }));
  TY_ASSIGN_OR_RETURN(*job, record.read());
  job->clear_status();
  return record.restStatus();
}

}  // namespace

Status checkNotDeleted(const std::string& dir, const v1::TrainingJob& recorded) {
  if (!recorded.metadata().has_deletion_timestamp()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{}: the job is being deleted (trainyard delete finishes that)", dir));
}

std::vector<FieldChange> changesOf(const Json& before, const Json& after) {
  std::vector<FieldChange> changes;
  compare("", before, after, &changes);
  return changes;
}

std::vector<FieldChange> forbiddenChanges(const Json& before, const Json& after) {
  std::vector<FieldChange> changes = changesOf(before, after);
  std::erase_if(changes, mayChange);
  const bool switches = std::any_of(changes.begin(), changes.end(), [](const FieldChange& change) {
    return change.path == "strategy";
  });
  if (switches) std::erase_if(changes, isOfStrategy);
  return changes;
}

std::string foreignEntry(const fs::path& dir) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(dir, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!isOwnFolder(name) && !ownFiles().contains(finalName(name))) return name;
  }
  for (const std::string_view folder : kOwnFolders) {
    for (const auto& inside : fs::directory_iterator(dir / folder, ignored)) {
      const std::string name = inside.path().filename().string();
      if (!isOwnInside(folder, finalName(name))) return fmt::format("{}/{}", folder, name);
    }
  }
  return "";
}

StatusOr<OpenedRun> openRunDirectory(const DirectoryOptions& options, const v1::TrainingJob& given,
                                     const Clock& clock) {
  const control::RunPaths paths{options.dir};
  std::error_code ignored;
  // Before a lock file is put into a folder that is none of ours.
  if (!fs::exists(paths.job(), ignored)) TY_RETURN_IF_ERROR(refuseForeign(options));
  TY_RETURN_IF_ERROR(makeDirectories(paths.dir, 0700));
  TY_ASSIGN_OR_RETURN(FileLock lock, lockDirectory(paths));
  // What would fail later anyway fails before anything is removed.
  v1::TrainingJob job = given;
  TY_RETURN_IF_ERROR(control::resolveVolumes(options.volumes, options.cwd, &job));
  TY_RETURN_IF_ERROR(checkInitFrom(paths, job));
  TY_ASSIGN_OR_RETURN(const bool fresh, startsFresh(options, paths));
  if (!fresh) TY_RETURN_IF_ERROR(checkSameJob(paths, given));
  OpenedRun run{paths, std::move(lock), given, "", {}, {}, std::nullopt};
  if (!fresh) {
    TY_ASSIGN_OR_RETURN(run.finished, finishedResult(paths, given));
    if (run.finished) {
      run.headline = fmt::format("'{}' has finished already: {} (start over with --new)",
                                 given.metadata().name(), options.dir);
      return run;
    }
  }
  if (!fresh) TY_RETURN_IF_ERROR(checkRecord(paths));
  TY_RETURN_IF_ERROR(checkSpace(paths.dir));
  TY_RETURN_IF_ERROR(record(options, paths, fresh, given, clock, &run.job));
  run.headline = fresh ? fmt::format("starting '{}' in {}", given.metadata().name(), options.dir)
                       : resumeHeadline(paths, run.job, &run.warnings);
  run.notes = programNotes(run.job);
  return run;
}

StatusOr<OpenedRun> reopenRun(const std::string& dir, const Clock& clock) {
  const control::RunPaths paths{dir};
  control::RunRecord record(paths);
  TY_RETURN_IF_ERROR(record.read().status());  // before a lock's file is made
  TY_ASSIGN_OR_RETURN(FileLock lock, lockDirectory(paths));
  TY_ASSIGN_OR_RETURN(v1::TrainingJob job, record.read());
  TY_RETURN_IF_ERROR(checkNotDeleted(dir, job));
  TY_ASSIGN_OR_RETURN(const std::optional<RunResult> finished, finishedResult(paths, job));
  if (finished) {
    return absl::InvalidArgumentError(
        control::isForeign(job)
            ? fmt::format("{}: '{}' has finished already", dir, job.metadata().name())
            : fmt::format("{}: '{}' has finished already: {} steps (trainyard run -f FILE --set "
                          "training.steps=N goes on to more)",
                          dir, job.metadata().name(), finished->steps.value_or(0)));
  }
  TY_RETURN_IF_ERROR(checkRecord(paths));
  TY_RETURN_IF_ERROR(checkSpace(paths.dir));
  TY_RETURN_IF_ERROR(record.edit(clock, [](v1::TrainingJob* edited) {
    edited->mutable_spec()->mutable_run_policy()->set_suspend(false);
    return true;
  }));
  removeResult(paths);
  TY_RETURN_IF_ERROR(record.restStatus());
  TY_ASSIGN_OR_RETURN(job, record.read());
  job.clear_status();
  OpenedRun run{paths, std::move(lock), job, "", {}, {}, std::nullopt};
  run.headline = resumeHeadline(paths, job, &run.warnings);
  run.notes = programNotes(job);
  return run;
}

}  // namespace trainyard::cli
