// What a job's gradients and weights travel as: its fields training.wireType and
// training.allReduce.wireType.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/tensor/element_type.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::runtime {

// "Float16", "BFloat16"; anything else is Float32.
ElementType wireType(std::string_view field);
// Bytes of one element between a worker and a parameter server.
std::int64_t wireBytes(const v1::Training& training);

}  // namespace trainyard::runtime
