// Rows of the job's tables in shard files: for each range of partitions that a server has held
// together, arrays that are named after it, "table:user[0:64]/ids".
//
//   sizes   I64 [partitions]  rows of each
//   ids     I64 [rows]        the bits of an unsigned number; ascending by partition, then id
//   steps   I32 [rows]        that changed them last (unsigned)
//   counts  I32 [rows]        occurrences (unsigned)
//   rows    F32 [rows, dim]   not in a table of dim 0, which counts ids (rows/row_admission.h)
//   SLOT    F32 [rows, dim]   of the optimizer, by its name
//   gone    I64 [rows gone]   of a delta: ids whose rows its base may have, and that have gone
//
// Those of a range without rows are left out, but for `sizes`; so is `gone` where there are none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/status.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/snapshot.h"

namespace trainyard::runtime {

// A table as a manifest names it.
struct ManifestTable {
  std::string name;
  std::int64_t dim = 0;
  std::vector<std::string> slots;
};

// An array of any type, to be written as it is.
struct ShardArray {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  // little-endian; not owned
};
// What rows of these partitions, and so many that are gone, are written as; without bytes.
std::vector<ShardArray> tableArrays(const ManifestTable& table, int first,
                                    std::span<const std::int64_t> sizes, std::size_t gone);
// The same of rows that are there. `rows` must outlive them.
void addTableArrays(const ManifestTable& table, const TableRows& rows,
                    std::vector<ShardArray>& arrays);

// Rows that are read when it is their turn to be written, so that not all need memory at once.
// Table and rows must outlive it.
struct LateTable {
  const ManifestTable* table = nullptr;
  const LateRows* rows = nullptr;  // whose sizes are known
};

struct TableArrayName {
  std::string table;
  int first = 0;  // partitions [first, last)
  int last = 0;
  std::string array;
};
// Nothing: not such an array.
std::optional<TableArrayName> parseTableArrayName(std::string_view name);

// A range of partitions in a file.
struct TablePiece {
  int first = 0;
  int last = 0;
  std::size_t file = 0;
  struct Array {
    std::string dtype;
    std::vector<std::int64_t> shape;
    std::uint64_t offset = 0;  // from the start of the file
    std::uint64_t bytes = 0;
  };
  std::map<std::string, Array> arrays;  // by name, as "ids"
};
// Shapes and types are those of the table. INVALID_ARGUMENT says what is not.
Status checkTablePiece(const ManifestTable& table, const TablePiece& piece);

}  // namespace trainyard::runtime
