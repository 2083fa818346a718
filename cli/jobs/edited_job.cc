#include "cli/jobs/edited_job.h"

#include <algorithm>
#include <utility>

#include "base/core/printable.h"
#include "base/core/strings.h"
#include "base/process/files.h"
#include "fmt/format.h"
#include "operator/job/change.h"
#include "operator/job/job.h"

namespace trainyard::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxEditedBytes = 16 << 20;

// "worker.replicas" -> "/worker/replicas"
Json::json_pointer pointerTo(const std::string& path) {
  Json::json_pointer pointer;
  for (const std::string_view part : split(path, '.')) pointer.push_back(std::string(part));
  return pointer;
}

// As in `from`; absent where it is absent there.
void copyField(const Json& from, const std::string& path, Json* to) {
  const Json::json_pointer pointer = pointerTo(path);
  if (from.contains(pointer)) {
    (*to)[pointer] = from[pointer];
  } else if (to->contains(pointer)) {
    (*to)[pointer.parent_pointer()].erase(pointer.back());
  }
}

std::string listOf(const std::vector<FieldChange>& changes) {
  std::vector<std::string> texts;
  for (const FieldChange& change : changes) {
    texts.push_back(fmt::format("{}: {} -> {}", change.path, change.before, change.after));
  }
  return join(texts, ", ");
}

}  // namespace

bool mayChangeLive(const FieldChange& change) {
  // Not for passes, nor these for steps.
  if (change.path == "training.steps" &&
      !(parseNumber<std::int64_t>(change.before) && parseNumber<std::int64_t>(change.after))) {
    return false;
  }
  return control::mayChangeWhileRunning(change.path);
}

Status applyChanges(const std::vector<FieldChange>& changes, const Json& wanted,
                    v1::JobSpec* spec) {
  Json edited = toJson(*spec);
  for (const FieldChange& change : changes) copyField(wanted, change.path, &edited);
  v1::JobSpec result;
  TY_RETURN_IF_ERROR(fromJson(edited, &result));
  *spec = std::move(result);
  return absl::OkStatus();
}

EditedJob::EditedJob(control::RunPaths paths, const Clock& clock)
    : paths_(std::move(paths)), clock_(clock) {
  const auto text = readFile(paths_.jobYaml(), kMaxEditedBytes);
  if (!text.ok()) return;
  const auto job = control::parseJob(*text, paths_.jobYaml().string(), {}, nullptr);
  if (!job.ok()) return;
  text_ = *text;
  spec_ = toJson(job->spec());
}

void EditedJob::tell(const char* kind, std::string text, std::vector<RunEvent>* events) const {
  events->push_back({clock_.unixMillis(), kind, printable(text)});
}

std::vector<RunEvent> EditedJob::look() {
  std::vector<RunEvent> events;
  if (spec_.is_null()) return events;
  // Gone for a moment: some editors write a file anew.
  const auto text = readFile(paths_.jobYaml(), kMaxEditedBytes);
  if (!text.ok() || *text == text_) return events;
  text_ = *text;
  takeOver(*text, &events);
  return events;
}

void EditedJob::takeOver(const std::string& text, std::vector<RunEvent>* events) {
  const std::string file = paths_.jobYaml().string();
  const auto job = control::parseJob(text, file, {}, nullptr);
  if (!job.ok()) {
    return tell("warning",
                fmt::format("the edited file is left out: {}", fromAbsl(job.status().message())),
                events);
  }
  const Json wanted = toJson(job->spec());
  std::vector<FieldChange> taken = changesOf(spec_, wanted);
  const auto live = std::stable_partition(taken.begin(), taken.end(), mayChangeLive);
  const std::vector<FieldChange> refused(live, taken.end());
  taken.erase(live, taken.end());
  bool changed = false, superseded = false;
  Status applied;
  const Status edited = control::RunRecord(paths_).edit(clock_, [&](v1::TrainingJob* recorded) {
    superseded = !stillSays(text);
    if (superseded) return false;
    const Json before = toJson(recorded->spec());
    applied = applyChanges(taken, wanted, recorded->mutable_spec());
    changed = applied.ok() && toJson(recorded->spec()) != before;
    return changed;
  });
  if (!edited.ok() || !applied.ok()) {
    const Status& why = edited.ok() ? applied : edited;
    return tell("warning", fmt::format("{}: {}", file, fromAbsl(why.message())), events);
  }
  if (superseded) return;  // the next look sees it
  for (const FieldChange& change : taken) copyField(wanted, change.path, &spec_);
  if (changed) tell("state", fmt::format("{}: {}", file, listOf(taken)), events);
  if (refused.empty()) return;
  tell("warning",
       fmt::format("{}: cannot change while the job runs, and is set back: {}", file,
                   listOf(refused)),
       events);
  v1::TrainingJob kept = *job;
  if (!fromJson(spec_, kept.mutable_spec()).ok()) return;
  setBack(text, control::toYaml(toJson(kept)), events);
}

// `trainyard scale` writes the file and the record together, under the record's lock: what it wrote
// meanwhile is not to be undone by what was read before.
bool EditedJob::stillSays(const std::string& text) const {
  const auto now = readFile(paths_.jobYaml(), kMaxEditedBytes);
  return now.ok() && *now == text;
}

void EditedJob::setBack(const std::string& text, const std::string& kept,
                        std::vector<RunEvent>* events) {
  Status written;
  const Status locked = control::RunRecord(paths_).edit(clock_, [&](v1::TrainingJob*) {
    if (!stillSays(text)) return false;
    written = writeFileAtomically(paths_.jobYaml(), kept);
    if (written.ok()) text_ = kept;
    return false;
  });
  const Status& failed = locked.ok() ? written : locked;
  if (!failed.ok()) {
    tell("warning", fmt::format("{}: {}", paths_.jobYaml().string(), fromAbsl(failed.message())),
         events);
  }
}

}  // namespace trainyard::cli
