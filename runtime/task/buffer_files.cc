#include "runtime/task/buffer_files.h"

#include <charconv>
#include <filesystem>
#include <iterator>
#include <map>
#include <string_view>

#include "base/process/files.h"
#include "fmt/format.h"

namespace trainyard::runtime {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "buffers.step-";
constexpr std::string_view kSuffix = ".pt";
constexpr std::size_t kMaxBytes = std::size_t{1} << 32;

std::optional<std::int64_t> stepOf(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(kSuffix.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return step;
}

std::map<std::int64_t, fs::path> filesOf(const std::string& dir) {
  std::map<std::int64_t, fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir, error)) {
    if (const auto step = stepOf(entry.path().filename().string())) files[*step] = entry.path();
  }
  return files;
}

}  // namespace

Status saveBuffers(const std::string& dir, std::int64_t step, int keep, Model& model) {
  const std::string bytes = model.saveState();
  if (bytes.empty()) return absl::OkStatus();
  TY_RETURN_IF_ERROR(makeDirectories(dir));
  const std::string name = fmt::format("{}{}{}", kPrefix, step, kSuffix);
  TY_RETURN_IF_ERROR(writeFileAtomically(fs::path(dir) / name, bytes));
  auto files = filesOf(dir);
  while (files.size() > static_cast<std::size_t>(keep)) {
    std::error_code error;
    fs::remove(files.begin()->second, error);
    files.erase(files.begin());
  }
  return absl::OkStatus();
}

bool hasBuffers(const std::string& dir, std::int64_t step) {
  return filesOf(dir).contains(step);
}

StatusOr<bool> restoreBuffers(const std::string& dir, std::optional<std::int64_t> step,
                              Model& model) {
  if (model.saveState().empty()) return false;
  const auto files = filesOf(dir);
  const auto after = step ? files.upper_bound(*step) : files.end();
  if (after == files.begin()) return false;
  const fs::path& path = std::prev(after)->second;
  TY_ASSIGN_OR_RETURN(const std::string bytes, readFile(path, kMaxBytes));
  TY_RETURN_IF_ERROR(annotate(model.loadState(bytes), path.string()));
  return true;
}

}  // namespace trainyard::runtime
