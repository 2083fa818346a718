// Files of Criteo's clicks as tabular samples.
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

// Lines of 40 fields with tabs between, and none that names them: the label, 13 integers, 26
// categories in hexadecimal of up to 32 bits; any but the label may be empty (Criteo, "Display
// Advertising Challenge" and "Criteo 1TB Click Logs dataset"). Reads whole files, as csv.h does,
// and errors are as there.
//   label      0 or 1
//   I1 to I13  log(1 + x), and 0 where x is below 0 or missing: as the reference implementation of
//              DLRM does (facebookresearch/dlrm, data_utils.py and dlrm_data_pytorch.py)
//   C1 to C26  value x of the n-th is the id n * 2^32 + x, a missing one the id n: a table that
//              several of them look up keeps them apart
StatusOr<std::unique_ptr<Dataset>> readCriteo(const std::string& field,
                                              std::span<const std::string> paths,
                                              std::span<const Column> columns,
                                              const Reading& reading = {});

}  // namespace trainyard::runtime::internal
