#include "runtime/rows/row_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/core/check.h"
#include "base/core/rng.h"
#include "base/core/units.h"
#include "fmt/format.h"
#include "runtime/checkpoint/snapshot.h"
#include "runtime/tensor/kernels.h"

namespace trainyard::runtime::rows {
namespace {

// Rows whose memory is asked for before the first of them is looked at.
constexpr std::size_t kGroup = 32;

}  // namespace

RowTable::RowTable(RowTableOptions options, const Optimizer& optimizer, PartitionRange range)
    : options_(std::move(options)),
      optimizer_(optimizer),
      range_(range),
      salt_(saltOf(options_.name)),
      key_(mixKey(options_.seed, options_.name)),
      cap_(partitionCap(options_.max_rows)),
      dim_(static_cast<std::size_t>(options_.dim)) {
  TY_CHECK(0 <= range.first && range.first <= range.last && range.last <= kPartitions,
           "a table holds partitions of the job");
  const std::size_t arrays = 1 + optimizer.slots().size();
  const auto partitions = static_cast<std::size_t>(range.last - range.first);
  // Nearly all partitions have no more than this; see partitionCap().
  const std::int64_t expected = std::min(cap_, partitionCap(options_.expected_rows));
  partitions_.reserve(partitions);
  for (std::size_t p = 0; p < partitions; ++p) {
    partitions_.push_back({RowIndex(), RowSlab(arrays * dim_)});
    if (options_.expected_rows > 0)
      partitions_.back().index.reserve(static_cast<std::uint32_t>(expected));
  }
  group_.resize(kGroup * arrays * dim_);
  gradients_.resize(kGroup * dim_);
}

RowTable::Partition& RowTable::partitionOf(std::uint64_t hash) const {
  const int partition = rows::partitionOf(hash);
  TY_CHECK(range_.has(partition), "ids are sent to who holds their partition");
  return partitions_[static_cast<std::size_t>(partition - range_.first)];
}

const RowSlab& RowTable::slabOf(int partition) const {
  TY_CHECK(range_.has(partition), "a partition is asked of who holds it");
  return partitions_[static_cast<std::size_t>(partition - range_.first)].slab;
}

RowTable::Place RowTable::find(std::uint64_t id, std::uint64_t hash) const {
  Partition& partition = partitionOf(hash);
  RowIndex::Probe probe = partition.index.find(hash);
  for (;;) {
    const std::uint32_t row = probe.next();
    if (row == RowIndex::kNone || partition.slab.header(row).id == id)
      return {hash, &partition, row};
  }
}

// In three passes, so that the misses of all rows are waited for at once: cells, rows, and the
// rows' ids, which only tell for sure.
void RowTable::prefetch(std::span<const std::uint64_t> ids, std::span<Place> places) const {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    places[i].hash = hashOf(ids[i], salt_);
    places[i].partition = &partitionOf(places[i].hash);
    places[i].partition->index.prefetch(places[i].hash);
  }
  for (Place& place : places.first(ids.size())) {
    const std::uint32_t row = place.partition->index.find(place.hash).next();
    if (row != RowIndex::kNone) place.partition->slab.prefetch(row);
  }
  for (std::size_t i = 0; i < ids.size(); ++i) places[i] = find(ids[i], places[i].hash);
}

void RowTable::pull(std::span<const std::uint64_t> ids, std::span<float> out) const {
  TY_CHECK(out.size() == ids.size() * dim_, "there is room for each id's row");
  std::array<Place, kGroup> places;
  for (std::size_t begin = 0; begin < ids.size(); begin += kGroup) {
    const auto group = ids.subspan(begin, std::min(kGroup, ids.size() - begin));
    prefetch(group, places);
    for (std::size_t i = 0; i < group.size(); ++i) {
      const std::span<float> to = out.subspan((begin + i) * dim_, dim_);
      if (places[i].row == RowIndex::kNone) {
        readAbsent(group[i], to);
      } else {
        std::copy_n(places[i].partition->slab.floats(places[i].row).begin(), dim_, to.begin());
      }
    }
  }
}

void RowTable::readAbsent(std::uint64_t id, std::span<float> to) const {
  if (options_.admit_after > 1) {
    std::ranges::fill(to, 0.0F);
  } else {
    initialiseRow(options_.initial, key_, id, to);
  }
}

RowTable::Place RowTable::addRow(std::uint64_t id, std::uint64_t hash) {
  Partition& partition = partitionOf(hash);
  const std::uint32_t row = partition.slab.add();
  partition.slab.header(row).id = id;
  partition.index.insert(hash, row);
  ++size_;
  return {hash, &partition, row};
}

RowTable::Place RowTable::create(std::uint64_t id, std::uint64_t hash) {
  const Place created = addRow(id, hash);
  const std::span<float> floats = created.partition->slab.floats(created.row);
  initialiseRow(options_.initial, key_, id, floats.first(dim_));
  for (std::size_t s = 0; s < optimizer_.slots().size(); ++s)
    std::ranges::fill(floats.subspan((1 + s) * dim_, dim_), optimizer_.initialSlot(s));
  return created;
}

// The last row of the partition takes its place, so that rows lie without holes.
void RowTable::erase(const Place& place) {
  auto& [index, slab] = *place.partition;
  index.erase(place.hash, place.row);
  const std::uint32_t last = slab.size() - 1;
  if (place.row != last) {
    index.renumber(hashOf(slab.header(last).id, salt_), last, place.row);
    slab.copy(last, place.row);
  }
  slab.removeLast();
  --size_;
}

// Before the row is touched, or created.
void RowTable::note(std::uint64_t id, const Place& place, RowUndo& undo) const {
  if (place.row == RowIndex::kNone) {
    undo.add({.id = id, .step = 0, .count = 0, .created = true}, {});
    return;
  }
  const RowHeader& header = place.partition->slab.header(place.row);
  undo.add({.id = id, .step = header.step, .count = header.count, .created = false},
           place.partition->slab.floats(place.row));
}

Status RowTable::checkFinite(std::span<const std::uint64_t> ids,
                             std::span<const float> gradients) const {
  if (allFinite(gradients)) return absl::OkStatus();
  const auto wrong = std::ranges::find_if(gradients, [](float g) { return !std::isfinite(g); });
  const auto at = static_cast<std::size_t>(wrong - gradients.begin()) / dim_;
  return absl::InvalidArgumentError(
      fmt::format("table {}: the gradient of id {} is not finite", options_.name, ids[at]));
}

Status RowTable::full() const {
  return absl::ResourceExhaustedError(
      fmt::format("table {}: a partition of {} holds {} rows, rows.max is {}", options_.name,
                  kPartitions, formatCount(cap_), formatCount(options_.max_rows)));
}

// Rows of ids [begin, end), created where they are not there; those that are refused are left out,
// and so is their gradient. How many there are.
StatusOr<std::size_t> RowTable::placeGroup(const RowUpdate& update, std::size_t begin,
                                           std::size_t end, std::span<Place> places, RowUndo* undo,
                                           RowUpdateResult& result) {
  const auto ids = update.ids.subspan(begin, end - begin);
  prefetch(ids, places);
  std::size_t placed = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    Place place = places[i];
    const bool is_new = place.row == RowIndex::kNone;
    if (is_new && place.partition->index.size() >= cap_) {
      if (options_.on_full == RowTableOptions::OnFull::kFail) return full();
      ++result.refused;
      continue;
    }
    if (undo != nullptr) note(ids[i], place, *undo);
    if (is_new) {
      place = create(ids[i], place.hash);
      ++result.created;
    }
    RowHeader& header = place.partition->slab.header(place.row);
    header.step = update.step;
    header.count = addCounts(header.count, update.counts.empty() ? 1 : update.counts[begin + i]);
    std::copy_n(update.gradients.begin() + static_cast<std::ptrdiff_t>((begin + i) * dim_), dim_,
                gradients_.begin() + static_cast<std::ptrdiff_t>(placed * dim_));
    places[placed++] = place;
  }
  return placed;
}

// The rule runs once over the group's rows, which are brought together for it.
void RowTable::applyGroup(const UpdateContext& context, std::span<const Place> places,
                          std::span<const float> gradients) {
  const std::size_t slots = optimizer_.slots().size();
  const std::size_t length = places.size() * dim_;
  const auto array = [&](std::size_t a) { return std::span(group_).subspan(a * length, length); };
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::span<float> floats = places[i].partition->slab.floats(places[i].row);
    for (std::size_t a = 0; a <= slots; ++a)
      std::ranges::copy(floats.subspan(a * dim_, dim_), array(a).subspan(i * dim_).begin());
  }
  std::array<std::span<float>, 3> slot_arrays;
  for (std::size_t s = 0; s < slots; ++s) slot_arrays[s] = array(1 + s);
  optimizer_.apply(context, array(0), gradients, array(0), std::span(slot_arrays).first(slots));
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::span<float> floats = places[i].partition->slab.floats(places[i].row);
    for (std::size_t a = 0; a <= slots; ++a)
      std::ranges::copy(array(a).subspan(i * dim_, dim_), floats.subspan(a * dim_).begin());
  }
}

StatusOr<RowUpdateResult> RowTable::update(const RowUpdate& update, RowUndo* undo) {
  if (undo != nullptr) undo->clear();
  return change(update, undo);
}

StatusOr<RowUpdateResult> RowTable::change(const RowUpdate& update, RowUndo* undo) {
  TY_CHECK(update.gradients.size() == update.ids.size() * dim_ &&
               (update.counts.empty() || update.counts.size() == update.ids.size()),
           "each id has its gradient and its count");
  TY_RETURN_IF_ERROR(checkFinite(update.ids, update.gradients));
  RowUpdateResult result;
  std::array<Place, kGroup> places;
  for (std::size_t begin = 0; begin < update.ids.size(); begin += kGroup) {
    const std::size_t end = std::min(begin + kGroup, update.ids.size());
    TY_ASSIGN_OR_RETURN(const std::size_t placed,
                        placeGroup(update, begin, end, places, undo, result));
    if (placed == 0) continue;
    applyGroup(update.context, std::span(places).first(placed),
               std::span(gradients_).first(placed * dim_));
  }
  return result;
}

bool RowTable::isToGo(const RowView& row, std::uint32_t step) const {
  const RowEviction& evict = options_.evict;
  // Numbers of steps are cut to 32 bits. Asynchronously a row may know a later one than this.
  const std::int32_t age = stepsAfter(step, row.step);
  if (age <= 0) return false;
  if (evict.after_steps > 0 && age >= evict.after_steps) return true;
  if (!(evict.below_norm > 0)) return false;
  double squares = 0;
  for (const float weight : row.weights) squares += double{weight} * weight;
  return std::sqrt(squares) < evict.below_norm;
}

// From the last: the row that takes the place of one that goes has been looked at.
std::int64_t RowTable::evictFrom(Partition& partition, std::uint32_t step, RowUndo& undo) {
  std::int64_t gone = 0;
  for (std::uint32_t row = partition.slab.size(); row-- > 0;) {
    const RowView found = view(partition.slab, row);
    if (!isToGo(found, step)) continue;
    removeRow({hashOf(found.id, salt_), &partition, row}, undo);
    ++gone;
  }
  return gone;
}

void RowTable::removeRow(const Place& place, RowUndo& undo) {
  const RowHeader& header = place.partition->slab.header(place.row);
  undo.add({.id = header.id,
            .step = header.step,
            .count = header.count,
            .created = false,
            .evicted = true},
           place.partition->slab.floats(place.row));
  erase(place);
}

void RowTable::remove(std::span<const std::uint64_t> ids, RowUndo& undo) {
  for (const std::uint64_t id : ids) {
    const Place place = find(id, hashOf(id, salt_));
    TY_CHECK(place.row != RowIndex::kNone, "what is removed is there");
    removeRow(place, undo);
  }
}

std::int64_t RowTable::evict(std::int64_t version, std::uint32_t step, RowUndo& undo) {
  if (!options_.evict.any()) return 0;
  const std::int64_t every = options_.evict.every_steps;
  std::int64_t gone = 0;
  for (std::int64_t p = range_.first + ((version - range_.first) % every + every) % every;
       p < range_.last; p += every)
    gone += evictFrom(partitions_[static_cast<std::size_t>(p - range_.first)], step, undo);
  return gone;
}

void RowTable::fill(const Place& place, const RowUndo& undo, std::size_t entry) {
  RowHeader& header = place.partition->slab.header(place.row);
  header.step = undo.entries()[entry].step;
  header.count = undo.entries()[entry].count;
  std::ranges::copy(undo.floats(entry), place.partition->slab.floats(place.row).begin());
}

void RowTable::revert(const RowUndo& undo) {
  for (std::size_t e = undo.entries().size(); e-- > 0;) {
    const RowUndo::Entry& entry = undo.entries()[e];
    const std::uint64_t hash = hashOf(entry.id, salt_);
    const Place place = entry.evicted ? create(entry.id, hash) : find(entry.id, hash);
    TY_CHECK(place.row != RowIndex::kNone, "what an update has touched is there");
    if (entry.created) {
      erase(place);
    } else {
      fill(place, undo, e);
    }
  }
}

void RowTable::pullBefore(const RowUndo& undo, std::span<const std::uint64_t> ids,
                          std::span<float> out) const {
  pull(ids, out);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::ptrdiff_t entry = undo.find(ids[i]);
    if (entry < 0) continue;
    const std::span<float> to = out.subspan(i * dim_, dim_);
    if (undo.entries()[static_cast<std::size_t>(entry)].created) {
      readAbsent(ids[i], to);
    } else {
      std::ranges::copy(undo.floats(static_cast<std::size_t>(entry)).first(dim_), to.begin());
    }
  }
}

void RowTable::expect(int partition, std::int64_t rows) {
  RowIndex& index = partitions_[static_cast<std::size_t>(partition - range_.first)].index;
  index.reserve(index.size() + static_cast<std::uint32_t>(rows));
}

void RowTable::load(const RowView& row) {
  const Place loaded = addRow(row.id, hashOf(row.id, salt_));
  RowHeader& header = loaded.partition->slab.header(loaded.row);
  header.step = row.step;
  header.count = row.count;
  const std::span<float> floats = loaded.partition->slab.floats(loaded.row);
  TY_CHECK(row.weights.size() == dim_ && row.slots.size() == floats.size() - dim_,
           "a row has the table's length");
  std::ranges::copy(row.weights, floats.begin());
  std::ranges::copy(row.slots, floats.subspan(dim_).begin());
}

RowView RowTable::view(const RowSlab& slab, std::uint32_t row) const {
  const RowHeader& header = slab.header(row);
  const std::span<const float> floats = slab.floats(row);
  return {header.id, header.step, header.count, floats.first(dim_), floats.subspan(dim_)};
}

std::vector<RowView> RowTable::rows(int partition) const {
  const RowSlab& slab = slabOf(partition);
  std::vector<RowView> views;
  views.reserve(slab.size());
  for (std::uint32_t row = 0; row < slab.size(); ++row) views.push_back(view(slab, row));
  std::ranges::sort(views, {}, &RowView::id);
  return views;
}

bool RowTable::has(std::uint64_t id) const {
  return find(id, hashOf(id, salt_)).row != RowIndex::kNone;
}

std::uint32_t RowTable::countOf(std::uint64_t id) const {
  const Place place = find(id, hashOf(id, salt_));
  return place.row == RowIndex::kNone ? 0 : place.partition->slab.header(place.row).count;
}

std::int64_t RowTable::bytes() const {
  std::size_t bytes = partitions_.capacity() * sizeof(Partition);
  for (const Partition& partition : partitions_)
    bytes += partition.index.bytes() + partition.slab.bytes();
  return static_cast<std::int64_t>(bytes);
}

}  // namespace trainyard::runtime::rows
