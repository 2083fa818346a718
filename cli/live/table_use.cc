#include "cli/live/table_use.h"

#include <algorithm>
#include <cmath>

namespace trainyard::cli {
namespace {

std::int64_t whole(const SummedCounter& counter) {
  return std::llround(counter.total());
}

}  // namespace

void TableTotals::add(const control::TaskKey& task, const v1::RuntimeReport& report) {
  for (const v1::TableWork& work : report.tables()) {
    if (std::ranges::find(names_, work.table()) == names_.end()) names_.push_back(work.table());
    Counted& counted = counted_[work.table()][task];
    counted.rows = work.rows();
    counted.bytes = static_cast<std::int64_t>(work.bytes());
    counted.hot = work.hot();
    counted.created.add(static_cast<double>(work.created()));
    counted.refused.add(static_cast<double>(work.refused()));
    counted.evicted.add(static_cast<double>(work.evicted()));
    counted.pulled.add(static_cast<double>(work.pulled()));
    counted.pushed.add(static_cast<double>(work.pushed()));
    counted.occurrences.add(static_cast<double>(work.occurrences()));
    counted.distinct.add(static_cast<double>(work.distinct()));
  }
}

std::vector<TableUse> TableTotals::sums() const {
  std::vector<TableUse> sums;
  for (const std::string& name : names_) {
    TableUse& use = sums.emplace_back();
    use.name = name;
    double hot = 0;
    for (const auto& [task, counted] : counted_.at(name)) {
      use.rows += counted.rows;
      use.bytes += counted.bytes;
      use.created += whole(counted.created);
      use.refused += whole(counted.refused);
      use.evicted += whole(counted.evicted);
      use.pulled += whole(counted.pulled);
      use.pushed += whole(counted.pushed);
      use.occurrences += whole(counted.occurrences);
      use.distinct += whole(counted.distinct);
      hot += counted.hot * counted.pulled.total();
    }
    if (use.pulled > 0) use.hot = hot / static_cast<double>(use.pulled);
  }
  return sums;
}

}  // namespace trainyard::cli
