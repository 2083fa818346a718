// Paths into a job document: "spec.volumes[0].name", "metadata.labels["a.b/c"]".
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/status.h"

namespace trainyard::control::internal {

struct PathStep {
  std::string key;        // empty where `is_index`
  std::size_t index = 0;  // 0-based
  bool is_index = false;
};

// The path of a member or an item of what is at `parent` ("" is the document). Keys that are no
// plain words are quoted.
std::string childPath(std::string_view parent, std::string_view key);
std::string childPath(std::string_view parent, std::size_t index);
// INVALID_ARGUMENT says what is wrong with the path. A path is not empty.
StatusOr<std::vector<PathStep>> parsePath(std::string_view path);
std::string formatPath(const std::vector<PathStep>& steps);

// Where a value was written.
struct Location {
  std::string file;
  int line = 0;  // 1-based; 0: not known
};

// Where the values of a document come from. Not thread-safe.
class Locations {
 public:
  // Replaces what is known at and below `path`.
  void set(const std::string& path, Location location);
  // What is known of the path or of the nearest value around it.
  Location at(const std::string& path) const;

 private:
  std::map<std::string, Location> by_path_;
};

}  // namespace trainyard::control::internal
