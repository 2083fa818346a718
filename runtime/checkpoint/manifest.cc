#include <algorithm>
#include <filesystem>
#include <system_error>
#include <tuple>

#include "base/core/failpoint.h"
#include "base/core/strings.h"
#include "fmt/format.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/claim.h"
#include "runtime/checkpoint/manifest_json.h"
#include "runtime/checkpoint/names.h"
#include "runtime/storage/storage.h"

namespace trainyard::runtime {

Status commitManifest(const std::string& dir, const Manifest& manifest) {
  const std::string path = fmt::format("{}/{}", dir, manifest.fileName());
  TY_RETURN_IF_ERROR(annotate(validateManifest(manifest), path));
  TY_ASSIGN_OR_RETURN(const auto file, createStored(path));
  TY_RETURN_IF_ERROR(file->write(manifestToJson(manifest)));
  TY_RETURN_IF_ERROR(file->sync());
  if (hitFailpoint("checkpoint.manifest.commit", manifest.step) == FailAction::kError) {
    return absl::UnavailableError(fmt::format("{}: failpoint checkpoint.manifest.commit", path));
  }
  return file->commitExclusively();
}

StatusOr<Manifest> readManifest(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string();
  const auto named = parseManifestName(name);
  if (!named) return invalidInput(path, "not the name of a checkpoint, expected step-N.eM.json");
  auto text = readStored(path, kMaxManifestBytes);
  if (!text.ok()) return text.status();
  auto manifest = manifestFromJson(*text);
  if (!manifest.ok()) return annotate(manifest.status(), path);
  if (manifest->fileName() != name) {
    return invalidInput(path,
                        fmt::format("holds step {} of epoch {}", manifest->step, manifest->epoch));
  }
  return manifest;
}

namespace {

std::string noCheckpoint(std::string_view expected) {
  return fmt::format("holds no checkpoint, expected {}", expected);
}

// Folders of objects are not there by themselves: what ends like a manifest is one.
StatusOr<std::string> findRemoteManifest(const std::string& path) {
  if (path.ends_with(".json")) return path;
  std::string dir = path;
  while (dir.ends_with('/')) dir.pop_back();
  std::vector<std::string> problems;
  std::vector<Manifest> manifests = listManifests(dir, &problems);
  if (manifests.empty() && problems.empty()) {
    dir += "/checkpoints";
    manifests = listManifests(dir, &problems);
  }
  if (!problems.empty()) return absl::InvalidArgumentError(problems.front());
  if (manifests.empty())
    return invalidInput(path,
                        noCheckpoint("a folder of checkpoints, or a manifest step-N.eM.json"));
  return fmt::format("{}/{}", dir, manifests.front().fileName());
}

}  // namespace

StatusOr<std::string> findManifest(const std::string& path) {
  namespace fs = std::filesystem;
  if (isRemote(path)) return findRemoteManifest(path);
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (error) return errnoStatus(error.value(), path);
  if (!fs::is_directory(status)) return path;
  const fs::path inside = fs::path(path) / "checkpoints";
  const fs::path dir = fs::is_directory(inside, error) ? inside : fs::path(path);
  std::vector<std::string> problems;
  const std::vector<Manifest> manifests = listManifests(dir.string(), &problems);
  if (!problems.empty()) return absl::InvalidArgumentError(problems.front());
  if (manifests.empty()) {
    return invalidInput(path, noCheckpoint("a run directory, its checkpoints folder, or a manifest "
                                           "step-N.eM.json"));
  }
  return (dir / manifests.front().fileName()).string();
}

std::vector<Manifest> listManifests(const std::string& dir, std::vector<std::string>* problems) {
  StatusOr<std::vector<Manifest>> result = readManifests(dir, problems);
  if (result.ok()) return *std::move(result);
  if (problems != nullptr) problems->emplace_back(fromAbsl(result.status().message()));
  return {};
}

StatusOr<std::vector<Manifest>> readManifests(const std::string& dir,
                                              std::vector<std::string>* problems) {
  TY_ASSIGN_OR_RETURN(std::vector<Manifest> result, listWithVoid(dir, problems));
  TY_ASSIGN_OR_RETURN(const ClaimHistory claims, ClaimHistory::read(dir));
  std::erase_if(result, [&](const Manifest& manifest) { return claims.isVoid(manifest); });
  return result;
}

StatusOr<std::vector<Manifest>> listWithVoid(const std::string& dir,
                                             std::vector<std::string>* problems) {
  std::vector<Manifest> result;
  const auto report = [&](const Status& status) {
    if (problems != nullptr) problems->emplace_back(fromAbsl(status.message()));
  };
  const StatusOr<std::vector<StoredFile>> files = listStored(dir);
  if (mayPass(dir, files.status())) return files.status();
  if (!files.ok()) report(files.status());
  for (std::size_t i = 0; files.ok() && i < files->size(); ++i) {
    const std::string& name = (*files)[i].name;
    if (!parseManifestName(name)) continue;
    auto manifest = readManifest(fmt::format("{}/{}", dir, name));
    if (mayPass(dir, manifest.status())) return manifest.status();
    if (manifest.ok()) {
      result.push_back(*std::move(manifest));
    } else if (!absl::IsNotFound(manifest.status())) {  // removed meanwhile
      report(manifest.status());
    }
  }
  if (problems != nullptr) std::sort(problems->begin(), problems->end());
  std::sort(result.begin(), result.end(), [](const Manifest& a, const Manifest& b) {
    return std::tie(a.step, a.epoch) > std::tie(b.step, b.epoch);
  });
  return result;
}

StatusOr<std::vector<Manifest>> chainOf(const std::string& dir, const Manifest& manifest) {
  std::vector<Manifest> chain{manifest};
  while (!chain.back().base.empty()) {
    const std::string path = fmt::format("{}/{}", dir, chain.back().base);
    StatusOr<Manifest> base = readManifest(path);
    const auto broken = [&](std::string_view why) {
      return absl::DataLossError(
          fmt::format("{}: {} is a delta of it: {}", path, chain.back().fileName(), why));
    };
    if (!base.ok()) return broken(fromAbsl(base.status().message()));
    if (base->step >= chain.back().step || base->job_uid != manifest.job_uid)
      return broken("not a checkpoint before that one");
    chain.push_back(*std::move(base));
  }
  return chain;
}

StatusOr<std::int64_t> highestEpochNamed(const std::string& dir) {
  // No run gets that far: such a name is none of ours, and one more must stay a number.
  constexpr std::int64_t kMaxEpoch = std::int64_t{1} << 53;
  std::int64_t highest = 0;
  TY_ASSIGN_OR_RETURN(const std::vector<StoredFile> files, listStored(dir));
  for (const StoredFile& file : files) {
    const auto named = parseManifestName(file.name);
    if (named && named->epoch < kMaxEpoch) highest = std::max(highest, named->epoch);
  }
  return highest;
}

}  // namespace trainyard::runtime
