// Files of comma-separated values as tabular samples.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/core/status.h"
#include "runtime/data/dataset.h"
#include "runtime/data/internal/columns.h"
#include "runtime/data/internal/reading.h"

namespace trainyard::runtime::internal {

// Reads whole files (csv_records.h), one behind the other, into memory or scratch: 8 bytes for an
// id, 4 for a number, 1 for a label. The first line of each file names its columns, in any order;
// those that `columns` does not name are passed over.
//   Id      a whole number below 2^64
//   Ids     such numbers, separated by spaces; none where the field is empty
//   Number  a decimal, taken as the nearest float; 0 where the field is empty; not NaN or infinite
//   Text    anything, also nothing; its id is farmhash's Fingerprint64, which TensorFlow's
//           to_hash_bucket_fast takes (and divides by the number of buckets)
//   Label   0 or 1
// `field` is what errors begin with; then come file, line, column, what is wrong and what was
// expected: INVALID_ARGUMENT for content, errno's code for a file that cannot be read. No samples
// at all, or more than `reading.samples_max`, are refused.
StatusOr<std::unique_ptr<Dataset>> readCsv(const std::string& field,
                                           std::span<const std::string> paths,
                                           std::span<const Column> columns,
                                           const Reading& reading = {});

}  // namespace trainyard::runtime::internal
