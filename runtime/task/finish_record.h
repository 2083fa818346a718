// The durable note that a job has taken all its steps, with its last evaluation: finished.json
// beside the checkpoints.
#pragma once

#include <optional>
#include <string>

#include "base/core/status.h"
#include "trainyard/v1/coordinator.pb.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::runtime {

Status recordFinish(const std::string& dir, const v1::TrainingJob& job,
                    const v1::Evaluation& evaluation);
// Nothing when there is none, or it is of another job or another number of steps.
std::optional<v1::Evaluation> readFinish(const std::string& dir, const v1::TrainingJob& job);

}  // namespace trainyard::runtime
