// data.order of a job.
#pragma once

#include "base/core/status.h"
#include "runtime/data/sample_stream.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::runtime::internal {

// data.order and data.blockSamples; Shuffled where there is none. Errors name the field:
// INVALID_ARGUMENT.
StatusOr<SampleOrder> readOrder(const v1::DataSpec& spec);

// data.samples: at least one, and no more than the order takes.
Status checkSamples(const v1::DataSpec& spec);

}  // namespace trainyard::runtime::internal
