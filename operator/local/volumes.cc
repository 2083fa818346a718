#include "operator/local/volumes.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/core/object_path.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "operator/job/template.h"

namespace trainyard::control {
namespace {

namespace fs = std::filesystem;

// The part of `path` below `mount`; nothing when it lies elsewhere.
std::optional<fs::path> below(const fs::path& path, const fs::path& mount) {
  const fs::path relative = path.lexically_normal().lexically_relative(mount.lexically_normal());
  if (relative.empty() || *relative.begin() == "..") return std::nullopt;
  return relative;
}

StatusOr<std::string> resolve(const std::string& field, const std::string& path,
                              const v1::JobSpec& spec,
                              const std::map<std::string, std::string>& folders,
                              const std::string& cwd) {
  if (isObjectPath(path)) return path;
  // The deepest mount decides where mounts lie inside each other.
  const v1::Volume* volume = nullptr;
  std::optional<fs::path> inside;
  for (const v1::Volume& candidate : spec.volumes()) {
    if (candidate.mount_path().empty()) continue;
    if (volume && candidate.mount_path().size() <= volume->mount_path().size()) continue;
    if (auto relative = below(path, candidate.mount_path())) {
      volume = &candidate;
      inside = std::move(relative);
    }
  }
  if (!volume) return (fs::path(cwd) / path).lexically_normal().string();
  const auto folder = folders.find(volume->name());
  if (folder == folders.end()) {
    return absl::InvalidArgumentError(fmt::format("{}: {} is on volume '{}': give --volume {}=DIR",
                                                  field, path, volume->name(), volume->name()));
  }
  return (fs::path(cwd) / folder->second / *inside).lexically_normal().string();
}

// Like fields that hold one path each; stars stay what they are.
Status resolveList(const std::string& field, const v1::JobSpec& spec,
                   const std::map<std::string, std::string>& folders, const std::string& cwd,
                   google::protobuf::RepeatedPtrField<std::string>* paths) {
  for (int i = 0; i < paths->size(); ++i) {
    const std::string item = fmt::format("{}[{}]", field, i);
    TY_ASSIGN_OR_RETURN(*paths->Mutable(i), resolve(item, paths->Get(i), spec, folders, cwd));
  }
  return absl::OkStatus();
}

// A program of the user's own finds its volumes by TRAINYARD_VOLUME_<NAME>, at every launch.
Status recordFolders(const std::map<std::string, std::string>& folders, const std::string& cwd,
                     v1::JobSpec* spec) {
  for (v1::Volume& volume : *spec->mutable_volumes()) {
    const auto folder = folders.find(volume.name());
    if (folder == folders.end()) {
      return absl::InvalidArgumentError(
          fmt::format("volume '{}': give --volume {}=DIR", volume.name(), volume.name()));
    }
    const fs::path path = (fs::path(cwd) / folder->second).lexically_normal();
    volume.set_volume(nlohmann::ordered_json{{"hostPath", {{"path", path.string()}}}}.dump());
  }
  return absl::OkStatus();
}

}  // namespace

Status resolveVolumes(const std::map<std::string, std::string>& folders, const std::string& cwd,
                      v1::TrainingJob* job) {
  v1::JobSpec& spec = *job->mutable_spec();
  for (const auto& [name, folder] : folders) {
    const bool known =
        std::any_of(spec.volumes().begin(), spec.volumes().end(),
                    [&, &name = name](const v1::Volume& volume) { return volume.name() == name; });
    if (!known) {
      return absl::InvalidArgumentError(
          fmt::format("--volume {}={}: the job has no volume '{}'", name, folder, name));
    }
  }
  if (isForeign(*job)) {
    TY_RETURN_IF_ERROR(recordFolders(folders, cwd, &spec));
    return resolveWorkingDirs(cwd, job);
  }
  if (bringsModel(*job)) {
    TY_RETURN_IF_ERROR(recordFolders(folders, cwd, &spec));
    TY_RETURN_IF_ERROR(resolveWorkingDirs(cwd, job));
  }
  v1::Training& training = *spec.mutable_training();
  v1::DataSpec no_data;
  v1::DataSpec& data = training.has_data() ? *training.mutable_data() : no_data;
  v1::ModelSpec& model = *training.mutable_model();
  const std::pair<const char*, std::string*> fields[] = {
      {"training.model.path", model.has_path() ? model.mutable_path() : nullptr},
      {"training.data.images", data.has_images() ? data.mutable_images() : nullptr},
      {"training.data.labels", data.has_labels() ? data.mutable_labels() : nullptr},
      {"training.data.evalImages", data.has_eval_images() ? data.mutable_eval_images() : nullptr},
      {"training.data.evalLabels", data.has_eval_labels() ? data.mutable_eval_labels() : nullptr},
      {"training.data.cache", data.has_cache() ? data.mutable_cache() : nullptr},
      {"training.data.scratch", data.has_scratch() ? data.mutable_scratch() : nullptr},
      {"training.initFrom", training.has_init_from() ? training.mutable_init_from() : nullptr},
  };
  for (const auto& [field, path] : fields) {
    if (path == nullptr || path->empty()) continue;
    TY_ASSIGN_OR_RETURN(*path, resolve(field, *path, spec, folders, cwd));
  }
  TY_RETURN_IF_ERROR(resolveList("training.data.files", spec, folders, cwd, data.mutable_files()));
  return resolveList("training.data.evalFiles", spec, folders, cwd, data.mutable_eval_files());
}

std::map<std::string, std::string> volumeFolders(const v1::JobSpec& spec) {
  std::map<std::string, std::string> folders;
  for (const v1::Volume& volume : spec.volumes()) {
    const auto source = nlohmann::json::parse(volume.volume(), nullptr, /*allow_exceptions=*/false);
    const auto path = nlohmann::json::json_pointer("/hostPath/path");
    if (!source.is_object() || !source.contains(path) || !source.at(path).is_string()) continue;
    folders[volume.name()] = source.at(path).get<std::string>();
  }
  return folders;
}

}  // namespace trainyard::control
