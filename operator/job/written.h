// A TrainingJob as it was written, for an apiserver.
#pragma once

#include <string>
#include <vector>

#include "operator/job/job.h"

namespace trainyard::control {

// As loadJob(); `written` is the document with the overrides and without defaults, null members,
// status and what of metadata an apiserver writes. Whole numbers are written as such (2.0 is 2).
StatusOr<v1::TrainingJob> loadWrittenJob(const std::string& path, const ParseOptions& options,
                                         std::vector<JobProblem>* problems,
                                         nlohmann::ordered_json* written);

}  // namespace trainyard::control
