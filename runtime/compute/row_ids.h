// Which rows the samples of the stream need: what is asked for ahead of a step.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/data/dataset.h"
#include "runtime/data/sample_stream.h"
#include "runtime/data/table_lookup.h"
#include "runtime/train/row_exchange.h"

namespace trainyard::runtime {

// Thread-safe.
class StreamRowIds {
 public:
  // `data` must outlive it. `seed` and `order`: of the sample stream.
  StreamRowIds(const Dataset& data, std::vector<TableLookup> tables, std::uint64_t seed,
               SampleOrder order);
  // As RowIdsAt.
  RowIds at(std::int64_t first, int count);

 private:
  const Dataset& data_;
  const std::vector<TableLookup> tables_;
  std::mutex mutex_;
  SampleStream stream_;
  std::vector<std::int64_t> samples_;
  std::vector<FeatureIds> features_;
};

}  // namespace trainyard::runtime
