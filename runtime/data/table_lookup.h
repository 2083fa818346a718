// Which columns of ids are looked up in which of the job's tables, and what a sample makes of the
// rows that it finds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/core/status.h"
#include "runtime/data/dataset.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::runtime {

// What becomes of the n rows that a sample has of one feature; without rows, zeros. TensorFlow's
// combiners of embedding_lookup_sparse, all weights 1.
enum class Combiner {
  kSum,
  kMean,   // sum / n
  kSqrtN,  // sum / sqrt(n)
};

struct TableLookup {
  std::string name;
  std::size_t dim = 1;
  Combiner combiner = Combiner::kMean;
  std::vector<std::size_t> features;  // numbers of Columns::features, in the order of the job
};

// The job's tables over its columns. INVALID_ARGUMENT names a feature that is no column of ids.
StatusOr<std::vector<TableLookup>> tableLookups(const v1::Training& training,
                                                const Columns& columns);

// By table: the ids of its first feature, sample after sample, then of its second, ...
std::vector<std::vector<std::uint64_t>> occurrencesOf(std::span<const TableLookup> tables,
                                                      std::span<const FeatureIds> features);

// combined[sample * stride .. + dim) = what the combiner makes of the sample's rows. `rows`: of the
// feature's ids alone, `dim` each.
void combineRows(Combiner combiner, const FeatureIds& ids, std::span<const float> rows,
                 std::size_t dim, float* combined, std::size_t stride);
// Its gradient: rows[k] = that of combined, times what the k-th id's row counts for in it.
void spreadGradient(Combiner combiner, const FeatureIds& ids, const float* combined,
                    std::size_t stride, std::size_t dim, std::span<float> rows);

}  // namespace trainyard::runtime
