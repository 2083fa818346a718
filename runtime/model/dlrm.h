// DLRM for tabular data (Naumov and others: "Deep Learning Recommendation Model for Personalization
// and Recommendation Systems", 2019; github.com/facebookresearch/dlrm, dlrm_s_pytorch.py with
// --arch-interaction-op=dot).
//
//   bottom   dense layers over the numbers, with ReLU, the last one too; as wide as a row
//   vectors  the bottom's output; then of each table, in order, of each of its features: the
//            combined row
//   logit    dense layers over the bottom's output and the dot product of each two vectors
//            (interaction.h), with ReLU but for the last
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

// As makeWideAndDeep(). `variables`: the catalogue's trainable ones, those of the bottom first.
StatusOr<std::unique_ptr<Model>> makeDlrm(const v1::ModelSpec& spec,
                                          const std::vector<Variable>& variables,
                                          std::vector<TableLookup> tables, std::uint64_t seed);

}  // namespace trainyard::runtime
