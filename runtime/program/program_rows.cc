#include "runtime/program/program_rows.h"

#include <algorithm>

namespace trainyard::runtime {
namespace {

// A step under way, the next one, and what loaders' guesses that came to nothing leave behind.
constexpr std::size_t kMostAhead = 8;

}  // namespace

void LookedAhead::put(session::LookAhead ahead) {
  std::lock_guard lock(mutex_);
  ahead_.push_back(std::move(ahead));
  if (ahead_.size() > kMostAhead) ahead_.pop_front();
}

RowIds LookedAhead::at(std::int64_t first, int count) const {
  std::lock_guard lock(mutex_);
  const auto found = std::find_if(ahead_.rbegin(), ahead_.rend(), [&](const auto& ahead) {
    return ahead.first == first && ahead.count == count;
  });
  return found == ahead_.rend() ? RowIds(tables_) : found->ids;
}

ProgramRows::ProgramRows(std::vector<session::SessionTable> tables)
    : tables_(std::move(tables)), ahead_(tables_.size()) {}

RowSums ProgramRows::noSums() const {
  return {RowIds(tables_.size()), RowCounts(tables_.size()), RowValues(tables_.size())};
}

void ProgramRows::beginTurn(RowExchange& exchange, bool trains) {
  exchange_ = &exchange;
  came_ = trains ? exchange.rows() : TurnRows{};
  sums_ = noSums();
  places_.assign(tables_.size(), {});
  for (std::size_t t = 0; t < came_.ids.size(); ++t) {
    places_[t].reserve(came_.ids[t].size());
    for (std::size_t i = 0; i < came_.ids[t].size(); ++i) places_[t].emplace(came_.ids[t][i], i);
  }
}

StatusOr<RowValues> ProgramRows::read(std::size_t table, std::vector<std::uint64_t> ids) {
  RowIds asked(tables_.size());
  asked[table] = std::move(ids);
  return exchange_->readRows(asked);
}

StatusOr<std::vector<float>> ProgramRows::lookUp(const session::LookUp& look_up) {
  const std::size_t dim = tables_[look_up.table].dim;
  const auto& places = places_[look_up.table];
  std::vector<float> rows(look_up.ids.size() * dim, 0.0F);
  std::vector<std::uint64_t> missing;
  std::vector<std::size_t> wanted;  // where they belong
  for (std::size_t i = 0; i < look_up.ids.size(); ++i) {
    const auto place = places.find(look_up.ids[i]);
    if (place == places.end()) {
      missing.push_back(look_up.ids[i]);
      wanted.push_back(i);
    } else {
      std::copy_n(came_.values[look_up.table].data() + place->second * dim, dim,
                  rows.data() + i * dim);
    }
  }
  if (missing.empty()) return rows;
  const StatusOr<RowValues> read = this->read(look_up.table, std::move(missing));
  // The program goes on to the turn's end, where it hears that the turn does not count.
  if (absl::IsCancelled(read.status())) return rows;
  if (!read.ok()) return read.status();
  for (std::size_t k = 0; k < wanted.size(); ++k)
    std::copy_n((*read)[look_up.table].data() + k * dim, dim, rows.data() + wanted[k] * dim);
  return rows;
}

void ProgramRows::push(const session::PushRows& push) {
  const auto append = [&](auto& to, const auto& from) {
    to[push.table].insert(to[push.table].end(), from.begin(), from.end());
  };
  append(sums_.ids, push.ids);
  append(sums_.counts, push.counts);
  append(sums_.values, push.sums);
}

void ProgramRows::pushAll() {
  exchange_->pushRows(sums_);
}

std::vector<session::SessionTable> sessionTables(const v1::Training& training) {
  std::vector<session::SessionTable> tables;
  for (const v1::TableSpec& table : training.tables()) {
    session::Combining combiner = session::Combining::kMean;
    if (table.combiner() == "Sum") combiner = session::Combining::kSum;
    if (table.combiner() == "SqrtN") combiner = session::Combining::kSqrtN;
    tables.push_back({table.name(), static_cast<std::uint32_t>(table.dim()), combiner});
  }
  return tables;
}

}  // namespace trainyard::runtime
