// The durable note that a job has taken all its steps, with its last evaluation: finished.json
// beside the checkpoints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/core/status.h"
#include "trainyard/v1/coordinator.pb.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::runtime {

// `steps`: how many that were; `created`: of the coordinator's incarnation.
Status recordFinish(const std::string& dir, const v1::TrainingJob& job, std::uint32_t created,
                    std::int64_t steps, const v1::Evaluation& evaluation);
// The last evaluation; without evaluation data only its version, the number of steps. Nothing when
// there is none or what stands there is no such note, or it is of another job, or the job is now to
// take more steps (`wanted`) or another number of passes. A wish for more that came after the end
// does not undo it: in the same life of the task the job stays finished, since workers may have
// left.
std::optional<v1::Evaluation> readFinish(const std::string& dir, const v1::TrainingJob& job,
                                         std::uint32_t created, std::int64_t wanted);

}  // namespace trainyard::runtime
