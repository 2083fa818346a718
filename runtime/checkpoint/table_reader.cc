// Rows of the job's tables from a checkpoint.
#include <algorithm>
#include <numeric>

#include "base/core/strings.h"
#include "fmt/format.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/delta_rows.h"
#include "runtime/checkpoint/safetensors_file.h"

namespace trainyard::runtime {

Status CheckpointReader::addTableArray(const TableArrayName& name, const SafetensorsEntry& entry,
                                       std::uint64_t data_start) {
  const bool known =
      std::any_of(manifest_.tables.begin(), manifest_.tables.end(),
                  [&](const ManifestTable& table) { return table.name == name.table; });
  if (!known) return invalidInput(entry.name, "not in the manifest");
  std::vector<TablePiece>& pieces = tables_[name.table];
  auto piece = std::find_if(pieces.begin(), pieces.end(), [&](const TablePiece& p) {
    return p.file == files_.size() && p.first == name.first && p.last == name.last;
  });
  if (piece == pieces.end()) {
    pieces.push_back({.first = name.first, .last = name.last, .file = files_.size(), .arrays = {}});
    piece = pieces.end() - 1;
  }
  piece->arrays[name.array] = {.dtype = entry.dtype,
                               .shape = entry.shape,
                               .offset = data_start + entry.begin,
                               .bytes = entry.end - entry.begin};
  return absl::OkStatus();
}

Status CheckpointReader::checkTables() {
  for (const ManifestTable& table : manifest_.tables) {
    std::vector<TablePiece>& pieces = tables_[table.name];
    std::sort(pieces.begin(), pieces.end(),
              [](const TablePiece& a, const TablePiece& b) { return a.first < b.first; });
    int at = 0;
    for (const TablePiece& piece : pieces) {
      if (const Status status = checkTablePiece(table, piece); !status.ok())
        return absl::DataLossError(
            fmt::format("{}: {}", files_[piece.file]->file->path(), fromAbsl(status.message())));
      if (piece.first != at) break;
      at = piece.last;
    }
    if (at == kTablePartitions) continue;
    return absl::DataLossError(
        fmt::format("{}: table {}: partition {} is in none of its files, or in more than one",
                    manifest_.fileName(), table.name, at));
  }
  return absl::OkStatus();
}

template <typename T>
Status CheckpointReader::readArray(const TablePiece& piece, const std::string& name,
                                   std::vector<T>& out) const {
  const TablePiece::Array& array = piece.arrays.at(name);
  out.resize(array.bytes / sizeof(T));
  return files_[piece.file]->read(array.offset, std::as_writable_bytes(std::span(out)));
}

StatusOr<TableRows> CheckpointReader::readPiece(std::size_t table, const TablePiece& piece) const {
  const ManifestTable& described = manifest_.tables[table];
  TableRows rows = emptyRows(table, piece.first, described.slots.size());
  TY_RETURN_IF_ERROR(readArray(piece, "sizes", rows.sizes));
  if (piece.arrays.contains("gone")) TY_RETURN_IF_ERROR(readArray(piece, "gone", rows.gone));
  if (piece.arrays.contains("ids")) {
    TY_RETURN_IF_ERROR(readArray(piece, "ids", rows.ids));
    TY_RETURN_IF_ERROR(readArray(piece, "steps", rows.steps));
    TY_RETURN_IF_ERROR(readArray(piece, "counts", rows.counts));
    if (described.dim > 0) TY_RETURN_IF_ERROR(readArray(piece, "rows", rows.weights));
    for (std::size_t s = 0; s < described.slots.size(); ++s)
      TY_RETURN_IF_ERROR(readArray(piece, described.slots[s], rows.slots[s]));
  }
  const auto most = static_cast<std::int64_t>(rows.ids.size());
  const bool sane = std::all_of(rows.sizes.begin(), rows.sizes.end(),
                                [&](std::int64_t size) { return 0 <= size && size <= most; });
  const std::int64_t all = std::accumulate(rows.sizes.begin(), rows.sizes.end(), std::int64_t{0});
  if (sane && all == most) return rows;
  return absl::DataLossError(fmt::format("{}: table {}: sizes of partitions and rows differ",
                                         files_[piece.file]->file->path(), described.name));
}

Status CheckpointReader::walkOwnTable(std::size_t table, int first, int last,
                                      const std::function<Status(TableRows)>& sink) const {
  for (const TablePiece& piece : tables_.at(manifest_.tables[table].name)) {
    if (piece.last <= first || last <= piece.first) continue;
    TY_ASSIGN_OR_RETURN(TableRows rows, readPiece(table, piece));
    TY_RETURN_IF_ERROR(sink(std::move(rows)));
  }
  return absl::OkStatus();
}

// Of a delta, on top of what its base has.
StatusOr<TableRows> CheckpointReader::wholePiece(std::size_t table, const TablePiece& piece) const {
  TY_ASSIGN_OR_RETURN(TableRows rows, readPiece(table, piece));
  if (!isDelta(piece)) return rows;
  const auto& tables = base_->manifest_.tables;
  const auto before = std::ranges::find(tables, manifest_.tables[table].name, &ManifestTable::name);
  if (before == tables.end()) return rows;  // a table that counts ids may have come since
  std::vector<TableRows> base;
  TY_RETURN_IF_ERROR(base_->walkTable(static_cast<std::size_t>(before - tables.begin()),
                                      piece.first, piece.last, [&](TableRows former) {
                                        base.push_back(std::move(former));
                                        return absl::OkStatus();
                                      }));
  return mergeRows(base, rows);
}

Status CheckpointReader::walkTable(std::size_t table, int first, int last,
                                   const std::function<Status(TableRows)>& sink) const {
  for (const TablePiece& piece : tables_.at(manifest_.tables[table].name)) {
    if (piece.last <= first || last <= piece.first) continue;
    TY_ASSIGN_OR_RETURN(TableRows rows, wholePiece(table, piece));
    TY_RETURN_IF_ERROR(sink(std::move(rows)));
  }
  return absl::OkStatus();
}

bool CheckpointReader::isDelta(std::size_t table) const {
  return std::ranges::all_of(tables_.at(manifest_.tables[table].name),
                             [&](const TablePiece& piece) { return isDelta(piece); });
}

std::vector<std::pair<int, int>> CheckpointReader::cutsOf(std::size_t table) const {
  std::vector<std::pair<int, int>> cuts;
  for (const TablePiece& piece : tables_.at(manifest_.tables[table].name))
    cuts.emplace_back(piece.first, piece.last);
  return cuts;
}

StatusOr<std::int64_t> CheckpointReader::rowsOf(std::size_t table) const {
  std::int64_t count = 0;
  if (base_ != nullptr) {
    TY_RETURN_IF_ERROR(walkTable(table, 0, kTablePartitions, [&](const TableRows& rows) {
      count += static_cast<std::int64_t>(rows.ids.size());
      return absl::OkStatus();
    }));
    return count;
  }
  for (const TablePiece& piece : tables_.at(manifest_.tables[table].name)) {
    const auto ids = piece.arrays.find("ids");
    if (ids != piece.arrays.end()) count += ids->second.shape[0];
  }
  return count;
}

namespace {

std::span<const std::byte> arrayOf(const TableRows& rows, const ManifestTable& table,
                                   std::string_view array) {
  if (array == "ids") return std::as_bytes(std::span(rows.ids));
  if (array == "steps") return std::as_bytes(std::span(rows.steps));
  if (array == "counts") return std::as_bytes(std::span(rows.counts));
  const auto slot = std::find(table.slots.begin(), table.slots.end(), array);
  const auto& floats = slot == table.slots.end()
                           ? rows.weights
                           : rows.slots[static_cast<std::size_t>(slot - table.slots.begin())];
  return std::as_bytes(std::span(floats));
}

}  // namespace

Status CheckpointReader::walkTableArray(
    std::size_t table, const std::string& array,
    const std::function<Status(std::span<const std::byte>)>& sink) const {
  constexpr std::uint64_t kReadBytes = 1 << 20;
  if (base_ != nullptr) {
    return walkTable(table, 0, kTablePartitions, [&](const TableRows& rows) {
      return sink(arrayOf(rows, manifest_.tables[table], array));
    });
  }
  std::vector<std::byte> bytes;
  for (const TablePiece& piece : tables_.at(manifest_.tables[table].name)) {
    const auto found = piece.arrays.find(array);
    if (found == piece.arrays.end()) continue;
    const OpenFile& file = *files_[piece.file];
    for (std::uint64_t at = 0; at < found->second.bytes; at += bytes.size()) {
      bytes.resize(std::min(kReadBytes, found->second.bytes - at));
      TY_RETURN_IF_ERROR(file.read(found->second.offset + at, std::span(bytes)));
      TY_RETURN_IF_ERROR(sink(bytes));
    }
  }
  return absl::OkStatus();
}

}  // namespace trainyard::runtime
