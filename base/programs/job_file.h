// A resolved job in JSON, as tasks are given it.
#pragma once

#include <filesystem>

#include "base/core/status.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard {

// INVALID_ARGUMENT, or what reading the file gave, naming the file.
StatusOr<v1::TrainingJob> readJobFile(const std::filesystem::path& path);

}  // namespace trainyard
