// A small checkpoint whose every element is known, written by any number of parameter servers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint.h"

namespace trainyard::runtime {

// A folder for them, removed with all that it holds.
class SampleDir {
 public:
  SampleDir();
  SampleDir(const SampleDir&) = delete;
  SampleDir& operator=(const SampleDir&) = delete;
  ~SampleDir();
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// global_step (int32), conv [5, 7], fc [100, 3], bias [3]; slots rms and momentum.
std::vector<ManifestVariable> sampleVariables();
// Element `i` of a variable's weights (slot "") or slot at `step`.
float sampleValue(const std::string& variable, const std::string& slot, std::int64_t i,
                  std::int64_t step);

// All fields set; no files.
Manifest sampleManifest(std::int64_t step, std::int64_t epoch);
// Writes the shards of `ps` parameter servers, uncommitted; every variable is cut among all of
// them.
StatusOr<Manifest> writeSampleShards(const std::string& dir, int ps, std::int64_t step,
                                     std::int64_t epoch);
// The same with the manifest committed.
StatusOr<Manifest> writeSample(const std::string& dir, int ps, std::int64_t step,
                               std::int64_t epoch);

// Names of the files in a directory, sorted.
std::vector<std::string> fileNames(const std::string& dir);
std::string readText(const std::string& path);
void writeText(const std::string& path, const std::string& text);

}  // namespace trainyard::runtime
