#include "runtime/rows/part_snapshot.h"

#include <algorithm>
#include <numeric>

#include "base/core/check.h"
#include "runtime/rows/row_part.h"

namespace trainyard::runtime::rows {

PartSnapshot::PartSnapshot(const RowPart& part, std::optional<std::int64_t> since) : since_(since) {
  for (std::size_t s = 0; s < part.stores(); ++s) {
    const RowTable& table = part.store(s);
    Store& store = stores_.emplace_back();
    store.salt = saltOf(table.options().name);
    store.first = table.range().first;
    for (int p = table.range().first; p < table.range().last; ++p)
      store.sizes.push_back(table.sizeOf(p));
    store.images.resize(store.sizes.size());
  }
}

void PartSnapshot::note(std::size_t store, const RowUndo& undo) {
  Store& of = stores_[store];
  for (std::size_t e = 0; e < undo.entries().size(); ++e) {
    const RowUndo::Entry& entry = undo.entries()[e];
    Images& images = of.images[of.at(partitionOf(hashOf(entry.id, of.salt)))];
    if (images.read) continue;
    const auto [image, is_first] = images.rows.try_emplace(entry.id);
    if (!is_first) continue;
    image->second = {entry.step, entry.count, entry.created, images.floats.size()};
    const std::span<const float> floats = undo.floats(e);
    images.floats.insert(images.floats.end(), floats.begin(), floats.end());
  }
}

RowBatch PartSnapshot::read(const RowPart& part, std::size_t store, int partition) {
  Store& of = stores_[store];
  Images& images = of.images[of.at(partition)];
  TY_CHECK(!images.read, "a partition is read once");
  const RowTable& table = part.store(store);
  const std::size_t length = table.rowFloats();
  RowBatch batch;
  const auto add = [&](const RowHeader& header, const float* floats) {
    if (!isMeant(header.step)) return;
    batch.headers.push_back(header);
    batch.floats.insert(batch.floats.end(), floats, floats + length);
  };
  if (!since_) {
    const auto size = static_cast<std::size_t>(of.sizes[of.at(partition)]);
    batch.headers.reserve(size);
    batch.floats.reserve(size * length);
  }
  table.forEachRow(partition, [&](const RowHeader& header, std::span<const float> floats) {
    if (!images.rows.contains(header.id)) add(header, floats.data());
  });
  for (const auto& [id, image] : images.rows) {
    if (!image.created) add({id, image.step, image.count}, images.floats.data() + image.floats);
  }
  images = {};
  images.read = true;
  return batch;
}

std::size_t PartSnapshot::kept() const {
  std::size_t kept = 0;
  for (const Store& store : stores_) {
    for (const Images& images : store.images) kept += images.rows.size();
  }
  return kept;
}

TableRows roomForRows(const RowTable& table, std::size_t number, PartitionRange range,
                      std::int64_t rows) {
  const auto size = static_cast<std::size_t>(rows);
  const std::size_t floats = size * static_cast<std::size_t>(table.options().dim);
  TableRows room = emptyRows(number, range.first, table.slots());
  room.ids.reserve(size);
  room.steps.reserve(size);
  room.counts.reserve(size);
  room.weights.reserve(floats);
  for (std::vector<float>& slot : room.slots) slot.reserve(floats);
  return room;
}

void appendBatch(const RowBatch& batch, std::size_t dim, TableRows& to) {
  const std::size_t rows = batch.headers.size();
  const std::size_t length = (1 + to.slots.size()) * dim;
  std::vector<std::uint32_t> order(rows);
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::sort(order, {}, [&](std::uint32_t row) { return batch.headers[row].id; });
  for (const std::uint32_t row : order) {
    const RowHeader& header = batch.headers[row];
    to.ids.push_back(header.id);
    to.steps.push_back(header.step);
    to.counts.push_back(header.count);
    const float* const floats = batch.floats.data() + row * length;
    to.weights.insert(to.weights.end(), floats, floats + dim);
    for (std::size_t s = 0; s < to.slots.size(); ++s) {
      const float* const slot = floats + (1 + s) * dim;
      to.slots[s].insert(to.slots[s].end(), slot, slot + dim);
    }
  }
  to.sizes.push_back(static_cast<std::int64_t>(rows));
}

}  // namespace trainyard::runtime::rows
