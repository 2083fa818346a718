#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "runtime/checkpoint/changes.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/safetensors_file.h"
#include "runtime/checkpoint/tensor_walk.h"
#include "runtime/storage/storage.h"

namespace trainyard::runtime {

namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

struct Beside {
  std::shared_ptr<const ReadableFile> file;
  SafetensorsHeader header;
};

StatusOr<Beside> openBeside(const std::string& path) {
  Beside beside;
  if (path.empty()) return beside;
  TY_ASSIGN_OR_RETURN(beside.file, openStored(path));
  TY_ASSIGN_OR_RETURN(beside.header, readSafetensorsHeader(*beside.file));
  return beside;
}

Status copyArrays(const Beside& beside, WritableFile& to) {
  std::vector<std::byte> piece;
  for (const SafetensorsEntry& entry : beside.header.entries) {
    for (std::uint64_t at = entry.begin; at < entry.end; at += piece.size()) {
      piece.resize(std::min<std::uint64_t>(kPieceBytes, entry.end - at));
      TY_RETURN_IF_ERROR(beside.file->read(beside.header.data_start + at, std::span(piece)));
      TY_RETURN_IF_ERROR(to.write(piece));
    }
  }
  return absl::OkStatus();
}

// An array of a table, in the checkpoint and in the file.
struct TableArray {
  std::size_t table = 0;
  std::string array;
  SafetensorsEntry entry;
};

StatusOr<std::vector<TableArray>> tableArrays(const CheckpointReader& reader, bool slots) {
  std::vector<TableArray> arrays;
  const std::vector<ManifestTable>& tables = reader.manifest().tables;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    if (tables[t].dim == 0) continue;  // it counts ids that have no row
    TY_ASSIGN_OR_RETURN(const std::int64_t rows, reader.rowsOf(t));
    if (rows == 0) continue;  // the format has no empty arrays
    const auto add = [&](const std::string& array, const std::string& name, const char* dtype,
                         std::vector<std::int64_t> shape) {
      arrays.push_back(
          {t,
           array,
           {.name = tables[t].name + "/" + name, .dtype = dtype, .shape = std::move(shape)}});
    };
    add("ids", "ids", "I64", {rows});
    add("rows", "rows", "F32", {rows, tables[t].dim});
    if (!slots) continue;
    for (const std::string& slot : tables[t].slots)
      add(slot, "rows/" + slot, "F32", {rows, tables[t].dim});
    add("steps", "steps", "I32", {rows});
    add("counts", "counts", "I32", {rows});
  }
  return arrays;
}

// Whole tensors of variables, in the checkpoint and in the file.
struct Tensors {
  std::vector<std::pair<ManifestVariable, std::string>> tensors;  // and slot
  std::vector<SafetensorsEntry> entries;
};

Tensors tensorsOf(const CheckpointReader& reader, bool slots) {
  Tensors all;
  for (const ManifestVariable& variable : sortedVariables(reader.manifest())) {
    std::vector<std::string> names{""};
    if (slots) {
      for (std::string& slot : sortedSlots(reader.manifest())) {
        if (reader.hasSlot(variable.name, slot)) names.push_back(std::move(slot));
      }
    }
    for (const std::string& slot : names) {
      all.tensors.emplace_back(variable, slot);
      all.entries.push_back({.name = variable.name + (slot.empty() ? "" : "/") + slot,
                             .dtype = variable.dtype,
                             .shape = variable.shape});
    }
  }
  return all;
}

Status writeTensors(const CheckpointReader& reader, const Tensors& all, WritableFile& file) {
  for (const auto& [variable, slot] : all.tensors) {
    TY_RETURN_IF_ERROR(walkTensor(reader, variable, slot, [&](std::span<const std::byte> bytes) {
      return file.write(bytes);
    }));
  }
  return absl::OkStatus();
}

std::map<std::string, std::string> metadataOf(const Manifest& manifest) {
  return {{"trainyard.step", fmt::format("{}", manifest.step)},
          {"trainyard.job", manifest.job_uid},
          {"trainyard.optimizer", manifest.optimizer}};
}

StatusOr<std::unique_ptr<WritableFile>> beginFile(
    const std::string& path, const std::map<std::string, std::string>& metadata,
    const std::vector<SafetensorsEntry>& entries) {
  auto header = encodeSafetensorsHeader(metadata, entries);
  if (!header.ok()) return annotate(header.status(), path);
  TY_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, createStored(path));
  TY_RETURN_IF_ERROR(file->write(*header));
  return file;
}

// What has become of one table.
struct Changes {
  std::vector<std::uint64_t> ids, gone;
  std::vector<float> rows;
};

StatusOr<Changes> changesOf(const CheckpointReader* before, const CheckpointReader& after,
                            std::size_t table) {
  Changes all;
  const auto take = [&](const TableRows& rows) {
    all.ids.insert(all.ids.end(), rows.ids.begin(), rows.ids.end());
    all.rows.insert(all.rows.end(), rows.weights.begin(), rows.weights.end());
    all.gone.insert(all.gone.end(), rows.gone.begin(), rows.gone.end());
    return absl::OkStatus();
  };
  TY_RETURN_IF_ERROR(before == nullptr ? after.walkTable(table, 0, kTablePartitions, take)
                                       : walkChanges(*before, after, table, take));
  return all;
}

}  // namespace

Status exportSafetensors(const CheckpointReader& reader, const std::string& path, bool slots,
                         const std::string& beside) {
  TY_ASSIGN_OR_RETURN(const Beside others, openBeside(beside));
  const Tensors tensors = tensorsOf(reader, slots);
  std::vector<SafetensorsEntry> entries = tensors.entries;
  TY_ASSIGN_OR_RETURN(const std::vector<TableArray> arrays, tableArrays(reader, slots));
  for (const TableArray& array : arrays) entries.push_back(array.entry);
  entries.insert(entries.end(), others.header.entries.begin(), others.header.entries.end());
  TY_ASSIGN_OR_RETURN(const auto file, beginFile(path, metadataOf(reader.manifest()), entries));
  TY_RETURN_IF_ERROR(writeTensors(reader, tensors, *file));
  for (const TableArray& array : arrays) {
    TY_RETURN_IF_ERROR(reader.walkTableArray(
        array.table, array.array,
        [&](std::span<const std::byte> bytes) { return file->write(bytes); }));
  }
  TY_RETURN_IF_ERROR(copyArrays(others, *file));
  return file->commit();
}

StatusOr<std::vector<ExportedTable>> exportChanges(const CheckpointReader* before,
                                                   const CheckpointReader& after,
                                                   const std::string& path,
                                                   const std::string& beside) {
  TY_ASSIGN_OR_RETURN(const Beside others, openBeside(beside));
  const Tensors tensors = tensorsOf(after, /*slots=*/false);
  std::vector<SafetensorsEntry> entries = tensors.entries;
  std::vector<Changes> changes;
  std::vector<ExportedTable> exported;
  const std::vector<ManifestTable>& tables = after.manifest().tables;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    if (tables[t].dim == 0) continue;  // it counts ids that have no row
    TY_ASSIGN_OR_RETURN(Changes of_table, changesOf(before, after, t));
    const auto rows = static_cast<std::int64_t>(of_table.ids.size());
    const auto gone = static_cast<std::int64_t>(of_table.gone.size());
    const auto add = [&](const char* array, const char* dtype, std::vector<std::int64_t> shape) {
      if (shape[0] == 0) return;  // the format has no empty arrays
      entries.push_back(
          {.name = tables[t].name + array, .dtype = dtype, .shape = std::move(shape)});
    };
    add("/gone", "I64", {gone});
    add("/ids", "I64", {rows});
    add("/rows", "F32", {rows, tables[t].dim});
    exported.push_back({tables[t].name, rows, gone});
    changes.push_back(std::move(of_table));
  }
  entries.insert(entries.end(), others.header.entries.begin(), others.header.entries.end());
  auto metadata = metadataOf(after.manifest());
  if (before != nullptr) metadata["trainyard.since"] = fmt::format("{}", before->manifest().step);
  TY_ASSIGN_OR_RETURN(const auto file, beginFile(path, metadata, entries));
  TY_RETURN_IF_ERROR(writeTensors(after, tensors, *file));
  for (const Changes& of_table : changes) {
    TY_RETURN_IF_ERROR(file->write(std::as_bytes(std::span(of_table.gone))));
    TY_RETURN_IF_ERROR(file->write(std::as_bytes(std::span(of_table.ids))));
    TY_RETURN_IF_ERROR(file->write(std::as_bytes(std::span(of_table.rows))));
  }
  TY_RETURN_IF_ERROR(copyArrays(others, *file));
  TY_RETURN_IF_ERROR(file->commit());
  return exported;
}

}  // namespace trainyard::runtime
