#include "runtime/checkpoint/table_arrays.h"

#include <charconv>
#include <numeric>
#include <system_error>
#include <utility>

#include "fmt/format.h"
#include "fmt/ranges.h"

namespace trainyard::runtime {
namespace {

constexpr std::string_view kPrefix = "table:";
constexpr int kMostPartitions = 1 << 20;

template <typename T>
std::span<const std::byte> bytesOf(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

std::optional<int> numberIn(std::string_view text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  return is_number && 0 <= number && number <= kMostPartitions ? std::optional(number)
                                                               : std::nullopt;
}

}  // namespace

std::vector<ShardArray> tableArrays(const ManifestTable& table, int first,
                                    std::span<const std::int64_t> sizes, std::size_t gone) {
  const auto partitions = static_cast<std::int64_t>(sizes.size());
  const std::int64_t count = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  std::vector<ShardArray> arrays;
  const auto add = [&](std::string_view array, std::string dtype, std::vector<std::int64_t> shape) {
    arrays.push_back({.name = fmt::format("{}{}[{}:{}]/{}", kPrefix, table.name, first,
                                          first + partitions, array),
                      .dtype = std::move(dtype),
                      .shape = std::move(shape),
                      .bytes = {}});
  };
  add("sizes", "I64", {partitions});
  if (gone > 0) add("gone", "I64", {static_cast<std::int64_t>(gone)});
  if (count == 0) return arrays;
  add("ids", "I64", {count});
  add("steps", "I32", {count});
  add("counts", "I32", {count});
  if (table.dim > 0) add("rows", "F32", {count, table.dim});
  for (const std::string& slot : table.slots) add(slot, "F32", {count, table.dim});
  return arrays;
}

void addTableArrays(const ManifestTable& table, const TableRows& rows,
                    std::vector<ShardArray>& arrays) {
  std::vector<std::span<const std::byte>> bytes = {bytesOf(rows.sizes)};
  if (!rows.gone.empty()) bytes.push_back(bytesOf(rows.gone));
  bytes.insert(bytes.end(), {bytesOf(rows.ids), bytesOf(rows.steps), bytesOf(rows.counts)});
  if (table.dim > 0) bytes.push_back(bytesOf(rows.weights));
  for (const std::vector<float>& slot : rows.slots) bytes.push_back(bytesOf(slot));
  std::size_t next = 0;
  for (ShardArray& array : tableArrays(table, rows.first, rows.sizes, rows.gone.size())) {
    array.bytes = bytes[next++];
    arrays.push_back(std::move(array));
  }
}

std::optional<TableArrayName> parseTableArrayName(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  const std::size_t open = name.find('[');
  const std::size_t colon = name.find(':');
  const std::size_t close = name.find("]/");
  const bool ordered = open != std::string_view::npos && colon != std::string_view::npos &&
                       close != std::string_view::npos && open < colon && colon < close;
  if (!ordered || open == 0) return std::nullopt;
  const auto first = numberIn(name.substr(open + 1, colon - open - 1));
  const auto last = numberIn(name.substr(colon + 1, close - colon - 1));
  if (!first || !last || *first >= *last) return std::nullopt;
  return TableArrayName{.table = std::string(name.substr(0, open)),
                        .first = *first,
                        .last = *last,
                        .array = std::string(name.substr(close + 2))};
}

Status checkTablePiece(const ManifestTable& table, const TablePiece& piece) {
  const std::string place =
      fmt::format("table {}, partitions {} to {}", table.name, piece.first, piece.last - 1);
  const auto sizes = piece.arrays.find("sizes");
  if (sizes == piece.arrays.end() || sizes->second.dtype != "I64" ||
      sizes->second.shape != std::vector<std::int64_t>{piece.last - piece.first})
    return invalidInput(place, "no I64 array of its partitions' sizes");
  const auto gone = piece.arrays.find("gone");
  const bool has_gone = gone != piece.arrays.end();
  if (has_gone && (gone->second.dtype != "I64" || gone->second.shape.size() != 1))
    return invalidInput(place, "no I64 array of ids that are gone");
  if (piece.arrays.size() == (has_gone ? 2U : 1U)) return absl::OkStatus();  // no rows
  const auto ids = piece.arrays.find("ids");
  if (ids == piece.arrays.end() || ids->second.shape.size() != 1)
    return invalidInput(place, "no array of ids");
  const std::int64_t rows = ids->second.shape[0];
  const auto check = [&](const std::string& array, std::string_view dtype,
                         const std::vector<std::int64_t>& shape) -> Status {
    const auto found = piece.arrays.find(array);
    if (found != piece.arrays.end() && found->second.dtype == dtype && found->second.shape == shape)
      return absl::OkStatus();
    return invalidInput(
        place, fmt::format("no array {} of {} [{}]", array, dtype, fmt::join(shape, ", ")));
  };
  TY_RETURN_IF_ERROR(check("ids", "I64", {rows}));
  TY_RETURN_IF_ERROR(check("steps", "I32", {rows}));
  TY_RETURN_IF_ERROR(check("counts", "I32", {rows}));
  if (table.dim > 0) TY_RETURN_IF_ERROR(check("rows", "F32", {rows, table.dim}));
  for (const std::string& slot : table.slots)
    TY_RETURN_IF_ERROR(check(slot, "F32", {rows, table.dim}));
  const std::size_t expected = (table.dim > 0 ? 5 : 4) + table.slots.size() + has_gone;
  if (piece.arrays.size() != expected) return invalidInput(place, "unknown arrays");
  return absl::OkStatus();
}

}  // namespace trainyard::runtime
