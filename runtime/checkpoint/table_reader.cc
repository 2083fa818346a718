// Rows of the job's tables from a checkpoint.
#include <algorithm>
#include <numeric>

#include "base/core/strings.h"
#include "fmt/format.h"
#include "runtime/checkpoint/checkpoint.h"
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
            fmt::format("{}: {}", files_[piece.file]->path, fromAbsl(status.message())));
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

Status CheckpointReader::walkTable(std::size_t table, int first, int last,
                                   const std::function<Status(TableRows)>& sink) const {
  const ManifestTable& described = manifest_.tables[table];
  for (const TablePiece& piece : tables_.at(described.name)) {
    if (piece.last <= first || last <= piece.first) continue;
    TableRows rows{.table = table,
                   .first = piece.first,
                   .sizes = {},
                   .ids = {},
                   .steps = {},
                   .counts = {},
                   .weights = {},
                   .slots = std::vector<std::vector<float>>(described.slots.size())};
    TY_RETURN_IF_ERROR(readArray(piece, "sizes", rows.sizes));
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
    if (!sane || all != most) {
      return absl::DataLossError(fmt::format("{}: table {}: sizes of partitions and rows differ",
                                             files_[piece.file]->path, described.name));
    }
    TY_RETURN_IF_ERROR(sink(std::move(rows)));
  }
  return absl::OkStatus();
}

std::int64_t CheckpointReader::rowsOf(std::size_t table) const {
  std::int64_t rows = 0;
  for (const TablePiece& piece : tables_.at(manifest_.tables[table].name)) {
    const auto ids = piece.arrays.find("ids");
    if (ids != piece.arrays.end()) rows += ids->second.shape[0];
  }
  return rows;
}

Status CheckpointReader::walkTableArray(
    std::size_t table, const std::string& array,
    const std::function<Status(std::span<const std::byte>)>& sink) const {
  constexpr std::uint64_t kReadBytes = 1 << 20;
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
