// How much memory this process may still take: what the machine has, and what the control groups
// around it (a container's limit) allow.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/core/status.h"

namespace trainyard {

struct AvailableMemory {
  std::int64_t bytes = 0;  // that can be had now without swapping; caches count as free
  std::int64_t limit = 0;  // that there would be if nobody else used any
  std::string source;      // "this machine", or the control group whose limit is the tightest
};

// Reads ROOT/proc/meminfo, ROOT/proc/self/cgroup, and the groups' files below ROOT/sys/fs/cgroup
// (version 2, and the memory controller of version 1). What cannot be read of groups is taken for
// no limit. NOT_FOUND or INVALID_ARGUMENT names the file when meminfo lacks what is needed.
StatusOr<AvailableMemory> availableMemory(const std::filesystem::path& root = "/");

// RESOURCE_EXHAUSTED in one line when `needed` is more than there is, e.g. "vgg19 on a worker needs
// at least 4.2 GB of memory (weights 575 MB, ...), 2.1 GB of 8.3 GB are available (this machine)";
// of class kRetry when it would fit if others left.
Status checkMemory(const std::string& who, std::int64_t needed, const std::string& parts,
                   const AvailableMemory& available);

}  // namespace trainyard
