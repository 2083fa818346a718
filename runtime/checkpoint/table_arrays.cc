#include "runtime/checkpoint/table_arrays.h"

#include <charconv>
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

void addTableArrays(const ManifestTable& table, const TableRows& rows,
                    std::vector<ShardArray>& arrays) {
  const auto partitions = static_cast<std::int64_t>(rows.sizes.size());
  const auto count = static_cast<std::int64_t>(rows.ids.size());
  const auto add = [&](std::string_view array, std::string dtype, std::vector<std::int64_t> shape,
                       std::span<const std::byte> bytes) {
    arrays.push_back({.name = fmt::format("{}{}[{}:{}]/{}", kPrefix, table.name, rows.first,
                                          rows.first + partitions, array),
                      .dtype = std::move(dtype),
                      .shape = std::move(shape),
                      .bytes = bytes});
  };
  add("sizes", "I64", {partitions}, bytesOf(rows.sizes));
  if (!rows.gone.empty())
    add("gone", "I64", {static_cast<std::int64_t>(rows.gone.size())}, bytesOf(rows.gone));
  if (count == 0) return;
  add("ids", "I64", {count}, bytesOf(rows.ids));
  add("steps", "I32", {count}, bytesOf(rows.steps));
  add("counts", "I32", {count}, bytesOf(rows.counts));
  if (table.dim > 0) add("rows", "F32", {count, table.dim}, bytesOf(rows.weights));
  for (std::size_t s = 0; s < table.slots.size(); ++s)
    add(table.slots[s], "F32", {count, table.dim}, bytesOf(rows.slots[s]));
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
