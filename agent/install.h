// `trainyard-agent install FROM TO`: images without a shell have nothing else that could copy.
#pragma once

#include <filesystem>

#include "base/core/status.h"

namespace trainyard::agent {

// Copies a folder, such as this agent with all that it needs, into a volume; files that are there
// are written over. The error names both folders.
Status install(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace trainyard::agent
