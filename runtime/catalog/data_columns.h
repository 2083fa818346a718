// The columns of tabular data, whoever names them.
#pragma once

#include <string>
#include <vector>

#include "trainyard/v1/job.pb.h"

namespace trainyard::runtime {

// Numbers and categories of a sample of format criteo.
inline constexpr int kCriteoIntegers = 13;
inline constexpr int kCriteoCategories = 26;

// data.columns; of format criteo, whose files have no others, label, I1 to I13 and C1 to C26.
std::vector<v1::ColumnSpec> dataColumns(const v1::DataSpec& spec);

}  // namespace trainyard::runtime
