// Files of TensorFlow's examples as tabular samples.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/core/status.h"
#include "runtime/data/dataset.h"
#include "runtime/data/internal/columns.h"
#include "runtime/data/internal/reading.h"

namespace trainyard::runtime::internal {

// Reads whole files (record_file.h) whose records are tf.Examples (tf_example.h), one sample each,
// as csv.h does. A column is the feature of its name, which every example must have; other
// features are passed over.
//   Id      one int64; a negative one is the id 2^64 above it
//   Ids     int64s, as many as there are
//   Number  one float or int64, finite; an int64 is taken as the nearest float
//   Text    one bytes; its id is that of csv.h
//   Label   one float or int64, 0 or 1
// `field` is what errors begin with; then come file, record (from 1), column, what is wrong and
// what was expected: INVALID_ARGUMENT for content, errno's code for a file that cannot be read. No
// samples at all, or more than `reading.samples_max`, are refused.
StatusOr<std::unique_ptr<Dataset>> readTfRecord(const std::string& field,
                                                std::span<const std::string> paths,
                                                std::span<const Column> columns,
                                                const Reading& reading = {});

}  // namespace trainyard::runtime::internal
