#include "runtime/checkpoint/step_files.h"

#include <charconv>
#include <iterator>
#include <string_view>
#include <utility>

#include "fmt/format.h"
#include "runtime/storage/storage.h"

namespace trainyard::runtime {

StepFiles::StepFiles(std::string dir, std::string prefix, std::string suffix)
    : dir_(std::move(dir)), prefix_(std::move(prefix)), suffix_(std::move(suffix)) {}

std::string StepFiles::path(std::int64_t step) const {
  return fmt::format("{}/{}{}{}", dir_, prefix_, step, suffix_);
}

std::map<std::int64_t, std::string> StepFiles::files() const {
  std::map<std::int64_t, std::string> files;
  const StatusOr<std::vector<StoredFile>> stored = listStored(dir_);
  for (std::size_t i = 0; stored.ok() && i < stored->size(); ++i) {
    std::string_view name = (*stored)[i].name;
    if (name.size() < prefix_.size() + suffix_.size() || !name.starts_with(prefix_) ||
        !name.ends_with(suffix_)) {
      continue;
    }
    name.remove_prefix(prefix_.size());
    name.remove_suffix(suffix_.size());
    std::int64_t step = 0;
    const auto [end, wrong] = std::from_chars(name.data(), name.data() + name.size(), step);
    if (wrong == std::errc() && end == name.data() + name.size()) files[step] = path(step);
  }
  return files;
}

bool StepFiles::has(std::int64_t step) const {
  return files().contains(step);
}

std::optional<std::int64_t> StepFiles::newest(std::optional<std::int64_t> last) const {
  const auto found = files();
  const auto after = last ? found.upper_bound(*last) : found.end();
  if (after == found.begin()) return std::nullopt;
  return std::prev(after)->first;
}

void StepFiles::prune(int keep) const {
  auto found = files();
  while (found.size() > static_cast<std::size_t>(keep)) {
    static_cast<void>(removeStored(found.begin()->second));
    found.erase(found.begin());
  }
}

StepFiles declaredBufferFiles(const std::string& dir) {
  return {dir, "buffers.step-", ".safetensors"};
}

}  // namespace trainyard::runtime
