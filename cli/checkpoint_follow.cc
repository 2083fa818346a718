#include "cli/checkpoint_follow.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <ostream>
#include <utility>

#include "base/core/exit_code.h"
#include "base/core/printable.h"
#include "base/core/strings.h"
#include "base/process/poll.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "runtime/checkpoint/changes.h"
#include "runtime/checkpoint/step_files.h"
#include "runtime/storage/storage.h"

namespace trainyard::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr Duration kLookAtCheckpoints = std::chrono::seconds(1);
constexpr std::size_t kMostRecord = 1 << 20;

// Of the note that a job has ended (finished.json); -1: there is none.
std::int64_t finishedStep(const std::string& manifests) {
  const auto text = runtime::readStored(manifests + "/finished.json", kMostRecord);
  if (!text.ok()) return -1;
  const Json record = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  const auto step = record.is_object() ? record.find("step") : record.end();
  return step != record.end() && step->is_number_integer() ? step->get<std::int64_t>() : -1;
}

// `since`: the step whose rows are changed; -1: all rows are here.
Json lineOf(const runtime::Manifest& manifest, std::int64_t since, const std::string& path,
            const std::vector<runtime::ExportedTable>& tables) {
  Json line = {{"step", manifest.step}, {"since", nullptr}};
  if (since >= 0) line["since"] = since;
  line["unixMs"] = manifest.unix_ms;
  line["file"] = path;
  line["tables"] = Json::array();
  for (const runtime::ExportedTable& table : tables)
    line["tables"].push_back({{"name", table.name}, {"rows", table.rows}, {"gone", table.gone}});
  return line;
}

}  // namespace

bool CheckpointFollower::over() const {
  return last_ && finishedStep(options_.manifests) == last_->manifest().step;
}

// Opens what the reader has already.
void CheckpointFollower::begin(const std::vector<runtime::Manifest>& manifests,
                               const Console& console) {
  begun_ = true;
  if (!options_.since) return;
  const auto found = std::ranges::find(manifests, *options_.since, &runtime::Manifest::step);
  if (found != manifests.end()) {
    auto reader = runtime::CheckpointReader::open(options_.manifests, *found,
                                                  runtime::CheckpointReader::Verify::kWhatIsRead);
    if (reader.ok()) last_ = *std::move(reader);
  }
  if (last_) return;
  console.err << fmt::format(
      "trainyard: there is no checkpoint of step {} any more: all rows come first\n",
      *options_.since);
}

Status CheckpointFollower::look(const Console& console) {
  const std::vector<runtime::Manifest> manifests =
      runtime::listManifests(options_.manifests, nullptr);
  if (!begun_ && !manifests.empty()) begin(manifests, console);
  // After a job has gone back, the newest is that of the highest epoch.
  const auto newest = std::ranges::max_element(
      manifests, {},
      [](const runtime::Manifest& manifest) { return std::pair(manifest.epoch, manifest.step); });
  if (newest == manifests.end()) return absl::OkStatus();
  if (last_ && newest->fileName() == last_->manifest().fileName()) return absl::OkStatus();
  auto reader = runtime::CheckpointReader::open(options_.manifests, *newest,
                                                runtime::CheckpointReader::Verify::kWhatIsRead);
  if (!reader.ok()) return absl::UnavailableError(reader.status().message());
  return handOut(*std::move(reader), console);
}

// Of a program's model with buffers, those that a run goes on with from this step.
std::string CheckpointFollower::buffersOf(std::int64_t step) const {
  const runtime::StepFiles files = runtime::declaredBufferFiles(options_.manifests);
  const auto found = files.newest(step);
  return found ? files.path(*found) : "";
}

Status CheckpointFollower::handOut(runtime::CheckpointReader reader, const Console& console) {
  const runtime::Manifest& manifest = reader.manifest();
  const bool changes =
      options_.by_steps && last_ && runtime::comesFrom(manifest, last_->manifest());
  const std::string path =
      fmt::format("{}/step-{}.e{}.safetensors", options_.output, manifest.step, manifest.epoch);
  TY_ASSIGN_OR_RETURN(
      const std::vector<runtime::ExportedTable> tables,
      runtime::exportChanges(changes ? &*last_ : nullptr, reader, path, buffersOf(manifest.step)));
  const std::int64_t since = changes ? last_->manifest().step : -1;
  console.out << lineOf(manifest, since, path, tables).dump() << std::endl;
  last_ = std::move(reader);
  return absl::OkStatus();
}

int followCheckpoints(const Console& console, const FollowOptions& options) {
  std::error_code error;
  std::filesystem::create_directories(options.output, error);
  if (error) {
    console.err << fmt::format("trainyard: {}: {}\n", printable(options.output), error.message());
    return kExitUsage;
  }
  CheckpointFollower follower(options);
  for (;;) {
    const Status status = follower.look(console);
    // What is pruned while it is read comes again as another one.
    const bool passes = absl::IsUnavailable(status) && !options.once;
    if (!status.ok() && !passes) {
      console.err << "trainyard: " << printable(fromAbsl(status.message())) << "\n";
      return kExitFailure;
    }
    if (options.once || follower.over()) return kExitOk;
    pollUntil({}, console.clock->now() + kLookAtCheckpoints);
  }
}

}  // namespace trainyard::cli
