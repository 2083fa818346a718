#include "runtime/data/internal/file_pattern.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/core/glob.h"
#include "fmt/format.h"
#include "runtime/storage/storage.h"

namespace trainyard::runtime::internal {
namespace {

constexpr std::string_view kWild = "*?";

// As in a shell, no star stands for a dot at the beginning.
bool isMeant(std::string_view pattern, std::string_view name) {
  return !name.empty() && (!name.starts_with('.') || pattern.starts_with('.')) &&
         matchesGlob(pattern, name);
}

StatusOr<std::vector<std::string>> namesIn(const std::string& place, const std::string& folder) {
  std::vector<std::string> names;
  if (isRemote(folder)) {
    const StatusOr<std::vector<StoredFile>> files = listStored(folder);
    if (!files.ok()) return annotate(files.status(), place);
    for (const StoredFile& file : *files) names.push_back(file.name);
    return names;
  }
  std::error_code error;
  std::filesystem::directory_iterator entry(folder.empty() ? "." : folder, error);
  for (const std::filesystem::directory_iterator end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().native());
  }
  if (error) return errnoStatus(error.value(), fmt::format("{}: cannot list its folder", place));
  return names;
}

StatusOr<std::vector<std::string>> matchesOf(const std::string& place, const std::string& pattern) {
  const std::size_t slash = pattern.rfind('/');
  const std::size_t name = slash == std::string::npos ? 0 : slash + 1;
  const std::string before = pattern.substr(0, name);  // with its slash
  const std::string folder = before.size() > 1 ? before.substr(0, before.size() - 1) : before;
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> names, namesIn(place, folder));
  std::vector<std::string> found;
  for (const std::string& file : names) {
    if (isMeant(std::string_view(pattern).substr(name), file)) found.push_back(before + file);
  }
  if (found.empty()) {
    return absl::NotFoundError(fmt::format("{}: no file has such a name", place));
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

StatusOr<std::vector<std::string>> filesOf(const std::string& field,
                                           const std::vector<std::string>& patterns) {
  std::vector<std::string> files;
  for (const std::string& pattern : patterns) {
    if (pattern.find_first_of(kWild) == std::string::npos) {
      files.push_back(pattern);
      continue;
    }
    const std::string place = fmt::format("{}: {}", field, pattern);
    const std::size_t slash = pattern.rfind('/');
    if (slash != std::string::npos && pattern.find_first_of(kWild) < slash) {
      return invalidInput(place,
                          "* and ? stand in a folder's name, expected them behind the "
                          "last slash only");
    }
    TY_ASSIGN_OR_RETURN(const std::vector<std::string> matches, matchesOf(place, pattern));
    files.insert(files.end(), matches.begin(), matches.end());
  }
  return files;
}

}  // namespace trainyard::runtime::internal
