#include <bit>

#include "base/core/check.h"
#include "base/core/failpoint.h"
#include "fmt/format.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/names.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/storage/storage.h"

namespace trainyard::runtime {
namespace {

static_assert(std::endian::native == std::endian::little,
              "arrays go to disk as they lie in memory");

Status failedBy(const std::string& path, std::string_view failpoint) {
  return absl::UnavailableError(fmt::format("{}: failpoint {}", path, failpoint));
}

SafetensorsEntry entryOf(const ShardArray& array) {
  return {.name = array.name, .dtype = array.dtype, .shape = array.shape};
}

Status writeRows(const LateTable& late, WritableFile& file) {
  const TableRows rows = late.rows->read();
  TY_CHECK(rows.sizes == late.rows->sizes && rows.gone.empty(), "the header tells of these rows");
  std::vector<ShardArray> arrays;
  addTableArrays(*late.table, rows, arrays);
  for (const ShardArray& array : arrays) TY_RETURN_IF_ERROR(file.write(array.bytes));
  return absl::OkStatus();
}

}  // namespace

StatusOr<ShardFileInfo> writeShard(const std::string& dir, const std::string& name,
                                   const std::vector<ShardTensor>& tensors,
                                   const std::vector<ShardArray>& arrays,
                                   const std::vector<LateTable>& late) {
  if (!isPlainFileName(name)) return invalidInput(name, "not a file name for a checkpoint");
  const std::string path = fmt::format("{}/{}", dir, name);
  const std::int64_t step = findStepName(name).value_or(StepName{}).step;

  std::vector<SafetensorsEntry> entries;
  entries.reserve(tensors.size());
  for (const ShardTensor& tensor : tensors) {
    TY_CHECK(tensor.end > tensor.begin, "a shard's tensor has elements");
    TY_CHECK(tensor.bytes.size() == static_cast<std::size_t>(tensor.end - tensor.begin) * 4,
             "a shard's tensor holds as many bytes as its range says");
    entries.push_back(
        {.name = shardTensorName(tensor.variable, tensor.slot, tensor.begin, tensor.end),
         .dtype = tensor.is_int32 ? "I32" : "F32",
         .shape = {tensor.end - tensor.begin}});
  }
  for (const ShardArray& array : arrays) entries.push_back(entryOf(array));
  for (const auto& [table, rows] : late) {
    for (const ShardArray& array : tableArrays(*table, rows->first, rows->sizes, 0))
      entries.push_back(entryOf(array));
  }
  auto header = encodeSafetensorsHeader(
      {{"trainyard.format", fmt::format("{}", kCheckpointFormat)}}, entries);
  if (!header.ok()) return annotate(header.status(), path);

  TY_ASSIGN_OR_RETURN(const auto file, createStored(path));
  TY_RETURN_IF_ERROR(file->write(*header));
  for (const ShardTensor& tensor : tensors) {
    if (hitFailpoint("checkpoint.shard.write", step) == FailAction::kError) {
      return failedBy(path, "checkpoint.shard.write");
    }
    TY_RETURN_IF_ERROR(file->write(tensor.bytes));
  }
  for (const ShardArray& array : arrays) TY_RETURN_IF_ERROR(file->write(array.bytes));
  for (const LateTable& table : late) {
    if (hitFailpoint("checkpoint.shard.rows", step) == FailAction::kError)
      return failedBy(path, "checkpoint.shard.rows");
    TY_RETURN_IF_ERROR(writeRows(table, *file));
  }
  TY_RETURN_IF_ERROR(file->sync());
  if (hitFailpoint("checkpoint.shard.rename", step) == FailAction::kError) {
    return failedBy(path, "checkpoint.shard.rename");
  }
  TY_RETURN_IF_ERROR(file->commit());
  return ShardFileInfo{.name = name, .size = file->size(), .sha256 = file->sha256()};
}

}  // namespace trainyard::runtime
