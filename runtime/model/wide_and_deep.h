// Wide & Deep for tabular data (Cheng and others: "Wide & Deep Learning for Recommender Systems",
// 2016): dense layers over what a sample's rows of the tables and its numbers are, and beside them
// a linear model.
//
//   deep input  of each table of a dim above 1, in order, of each of its features: the combined
//   row;
//               then the numbers
//   logit       the dense layers' one output + the combined rows of all features of tables of dim 1
//               + numbers . numbers_wei
//
// The loss is the logarithmic one: of the sigmoid of the logit, and a label of 0 or 1.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/core/status.h"
#include "runtime/catalog/variable.h"
#include "runtime/data/table_lookup.h"
#include "runtime/model/model.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::runtime {

// `variables`: the catalogue's trainable ones, zeros at first. Hidden units are dropped as of
// spec.dropout(), keyed by `seed`. Computes on the processor. INVALID_ARGUMENT where tables and
// variables do not fit; the model's passes return it for a batch that does not fit the tables. The
// same batch gives the same bits, as long as the number of threads is the same. std::bad_alloc
// where there is no memory.
StatusOr<std::unique_ptr<Model>> makeWideAndDeep(const v1::ModelSpec& spec,
                                                 const std::vector<Variable>& variables,
                                                 std::vector<TableLookup> tables,
                                                 std::uint64_t seed);

}  // namespace trainyard::runtime
