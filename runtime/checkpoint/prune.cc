#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include "base/process/files.h"
#include "fmt/format.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/claim.h"
#include "runtime/checkpoint/names.h"

namespace trainyard::runtime {
namespace {

namespace fs = std::filesystem;

Status removeFile(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);  // absent is as good as removed
  if (error) return errnoStatus(error.value(), fmt::format("{}: cannot remove", path.string()));
  return absl::OkStatus();
}

bool endsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// What the kept manifests protect.
struct Kept {
  std::set<std::string> files;
  std::set<StepName> unreadable;  // their files are unknown
  std::int64_t newest_step = 0;
  StepName latest{0, -1};  // the newest of the highest epoch
  fs::file_time_type newest_time = fs::file_time_type::min();
};

// A shard or temporary file that nobody needs.
bool isLeftOver(const fs::directory_entry& entry, const Kept& kept) {
  const std::string name = entry.path().filename().string();
  const bool temporary = endsWith(name, ".tmp");
  if (!temporary && !endsWith(name, ".safetensors")) return false;
  const auto named = findStepName(name);
  if (!named || kept.files.contains(name) || kept.unreadable.contains(*named)) return false;
  const bool in_the_making = named->step > kept.newest_step || named->epoch > kept.latest.epoch ||
                             (named->epoch == kept.latest.epoch && named->step > kept.latest.step);
  if (in_the_making) return false;
  std::error_code error;
  const auto time = entry.last_write_time(error);
  return !error && time < kept.newest_time;
}

StatusOr<std::vector<fs::directory_entry>> list(const std::string& dir) {
  std::vector<fs::directory_entry> result;
  std::error_code error;
  fs::directory_iterator it(dir, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) result.push_back(*it);
  if (error) return errnoStatus(error.value(), fmt::format("{}: cannot list", dir));
  return result;
}

// The manifests but those that are void, which are removed. Their files go when their steps are
// past.
StatusOr<std::vector<Manifest>> removeVoid(const std::string& dir) {
  std::vector<Manifest> manifests = listWithVoid(dir, nullptr);
  const ClaimHistory claims = ClaimHistory::read(dir);
  for (const Manifest& manifest : manifests) {
    if (claims.isVoid(manifest))
      TY_RETURN_IF_ERROR(removeFile(fs::path(dir) / manifest.fileName()));
  }
  std::erase_if(manifests, [&](const Manifest& manifest) { return claims.isVoid(manifest); });
  return manifests;
}

}  // namespace

Status prune(const std::string& dir, int keep) {
  if (keep < 1)
    return invalidInput("checkpoint.keep", fmt::format("{}, expected at least 1", keep));
  TY_ASSIGN_OR_RETURN(const std::vector<Manifest> manifests, removeVoid(dir));
  if (manifests.empty()) return absl::OkStatus();

  Kept kept;
  kept.newest_step = manifests[0].step;
  std::set<std::string> readable;
  for (const Manifest& m : manifests) {
    readable.insert(m.fileName());
    if (m.epoch > kept.latest.epoch) kept.latest = {m.step, m.epoch};
    std::error_code error;
    const auto time = fs::last_write_time(fs::path(dir) / m.fileName(), error);
    if (!error) kept.newest_time = std::max(kept.newest_time, time);
  }
  std::set<std::string> needed;  // by chains
  const auto need = [&](const Manifest& manifest) {
    const auto chain = chainOf(dir, manifest);
    for (std::size_t i = 1; chain.ok() && i < chain->size(); ++i)
      needed.insert((*chain)[i].fileName());
  };
  const auto stays = [&](std::size_t i) {
    return i < static_cast<std::size_t>(keep) ||
           StepName{manifests[i].step, manifests[i].epoch} == kept.latest;
  };
  for (std::size_t i = 0; i < manifests.size(); ++i) {
    if (stays(i)) need(manifests[i]);
  }
  // After a rollback past a damaged checkpoint the run goes on in a higher epoch from a lower step:
  // its newest stays although others have later steps.
  for (std::size_t i = 0; i < manifests.size(); ++i) {
    const Manifest& m = manifests[i];
    if (stays(i) || needed.contains(m.fileName())) {
      for (const ShardFileInfo& file : m.files) kept.files.insert(file.name);
    } else {
      TY_RETURN_IF_ERROR(removeFile(fs::path(dir) / m.fileName()));
    }
  }
  // No manifest may outlive one of its files, not even after a power cut.
  TY_RETURN_IF_ERROR(syncFolder(dir));

  TY_ASSIGN_OR_RETURN(const std::vector<fs::directory_entry> entries, list(dir));
  for (const fs::directory_entry& entry : entries) {
    const std::string name = entry.path().filename().string();
    const auto named = parseManifestName(name);
    if (named && !readable.contains(name)) kept.unreadable.insert(*named);
  }
  for (const fs::directory_entry& entry : entries) {
    if (isLeftOver(entry, kept)) TY_RETURN_IF_ERROR(removeFile(entry.path()));
  }
  return absl::OkStatus();
}

}  // namespace trainyard::runtime
