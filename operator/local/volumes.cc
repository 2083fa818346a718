#include "operator/local/volumes.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "fmt/format.h"

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

}  // namespace

Status resolveVolumes(const std::map<std::string, std::string>& folders, const std::string& cwd,
                      v1::TrainingJob* job) {
  v1::JobSpec& spec = *job->mutable_spec();
  for (const auto& [name, folder] : folders) {
    const bool known = std::any_of(spec.volumes().begin(), spec.volumes().end(),
                                   [&](const v1::Volume& volume) { return volume.name() == name; });
    if (!known) {
      return absl::InvalidArgumentError(
          fmt::format("--volume {}={}: the job has no volume '{}'", name, folder, name));
    }
  }
  if (!spec.has_training()) return absl::OkStatus();
  v1::Training& training = *spec.mutable_training();
  v1::DataSpec no_data;
  v1::DataSpec& data = training.has_data() ? *training.mutable_data() : no_data;
  const std::pair<const char*, std::string*> fields[] = {
      {"training.data.images", data.has_images() ? data.mutable_images() : nullptr},
      {"training.data.labels", data.has_labels() ? data.mutable_labels() : nullptr},
      {"training.data.evalImages", data.has_eval_images() ? data.mutable_eval_images() : nullptr},
      {"training.data.evalLabels", data.has_eval_labels() ? data.mutable_eval_labels() : nullptr},
      {"training.initFrom", training.has_init_from() ? training.mutable_init_from() : nullptr},
  };
  for (const auto& [field, path] : fields) {
    if (path == nullptr || path->empty()) continue;
    TY_ASSIGN_OR_RETURN(*path, resolve(field, *path, spec, folders, cwd));
  }
  return absl::OkStatus();
}

}  // namespace trainyard::control
