#include "runtime/compute/row_ids.h"

#include <utility>

namespace trainyard::runtime {

StreamRowIds::StreamRowIds(const Dataset& data, std::vector<TableLookup> tables, std::uint64_t seed,
                           SampleOrder order)
    : data_(data), tables_(std::move(tables)), stream_(seed, data.size(), order) {}

RowIds StreamRowIds::at(std::int64_t first, int count) {
  if (count == 0) return RowIds(tables_.size());
  std::lock_guard lock(mutex_);
  samples_.resize(static_cast<std::size_t>(count));
  stream_.lookUp(first, samples_);
  data_.readFeatures(samples_, features_);
  return occurrencesOf(tables_, features_);
}

}  // namespace trainyard::runtime
