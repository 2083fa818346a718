#include "runtime/data/internal/file_pattern.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "fmt/format.h"

namespace trainyard::runtime::internal {
namespace {

constexpr std::string_view kWild = "*?";

StatusOr<std::vector<std::string>> matchesOf(const std::string& place,
                                             const std::filesystem::path& pattern) {
  const std::filesystem::path folder = pattern.parent_path();
  const std::string name = pattern.filename();
  std::vector<std::string> found;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder.empty() ? "." : folder, error);
  for (const std::filesystem::directory_iterator end; !error && entry != end;
       entry.increment(error)) {
    const std::filesystem::path file = entry->path().filename();
    if (matchesPattern(file.native(), name)) found.push_back(folder / file);
  }
  if (error) return errnoStatus(error.value(), fmt::format("{}: cannot list its folder", place));
  if (found.empty()) {
    return absl::NotFoundError(fmt::format("{}: no file has such a name", place));
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

bool matchesPattern(std::string_view name, std::string_view pattern) {
  if (name.starts_with('.') && !pattern.starts_with('.')) return false;
  // Where the last star takes one byte more when what follows does not match.
  std::size_t star = std::string_view::npos;
  std::size_t taken = 0;
  std::size_t n = 0;
  std::size_t p = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

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
