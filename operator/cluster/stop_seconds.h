// How long a job that is to stop may take.
#pragma once

#include <chrono>

#include "trainyard/v1/job.pb.h"

namespace trainyard::control {

// Of the built-in runtime its last checkpoint; on one machine also how long programs of the user's
// own have to end by themselves (pods say that in their template). 60 s where the job does not say.
std::chrono::seconds stopSeconds(const v1::RunPolicy& policy);

}  // namespace trainyard::control
