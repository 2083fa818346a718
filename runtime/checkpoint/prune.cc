#include <algorithm>
#include <set>

#include "fmt/format.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/claim.h"
#include "runtime/checkpoint/names.h"
#include "runtime/storage/storage.h"

namespace trainyard::runtime {
namespace {

Status removeFrom(const std::string& dir, const std::string& name) {
  return removeStored(fmt::format("{}/{}", dir, name));
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
  std::int64_t newest_time = INT64_MIN;
};

// A shard or temporary file that nobody needs.
bool isLeftOver(const StoredFile& file, const Kept& kept) {
  const std::string& name = file.name;
  const bool temporary = endsWith(name, ".tmp");
  if (!temporary && !endsWith(name, ".safetensors")) return false;
  const auto named = findStepName(name);
  if (!named || kept.files.contains(name) || kept.unreadable.contains(*named)) return false;
  const bool in_the_making = named->step > kept.newest_step || named->epoch > kept.latest.epoch ||
                             (named->epoch == kept.latest.epoch && named->step > kept.latest.step);
  return !in_the_making && file.modified_ns < kept.newest_time;
}

// The manifests but those that are void, which are removed. Their files go when their steps are
// past.
StatusOr<std::vector<Manifest>> removeVoid(const std::string& dir) {
  TY_ASSIGN_OR_RETURN(std::vector<Manifest> manifests, listWithVoid(dir, nullptr));
  TY_ASSIGN_OR_RETURN(const ClaimHistory claims, ClaimHistory::read(dir));
  for (const Manifest& manifest : manifests) {
    if (claims.isVoid(manifest)) TY_RETURN_IF_ERROR(removeFrom(dir, manifest.fileName()));
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
      TY_RETURN_IF_ERROR(removeFrom(dir, m.fileName()));
    }
  }
  // No manifest may outlive one of its files, not even after a power cut.
  TY_ASSIGN_OR_RETURN(Storage* const storage, storageOf(dir));
  TY_RETURN_IF_ERROR(storage->settle(dir));

  TY_ASSIGN_OR_RETURN(const std::vector<StoredFile> files, listStored(dir));
  for (const StoredFile& file : files) {
    const auto named = parseManifestName(file.name);
    if (!named) continue;
    if (!readable.contains(file.name)) kept.unreadable.insert(*named);
    kept.newest_time = std::max(kept.newest_time, file.modified_ns);
  }
  for (const StoredFile& file : files) {
    if (isLeftOver(file, kept)) TY_RETURN_IF_ERROR(removeFrom(dir, file.name));
  }
  return absl::OkStatus();
}

}  // namespace trainyard::runtime
