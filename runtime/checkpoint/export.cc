#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "fmt/format.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/durable_file.h"
#include "runtime/checkpoint/safetensors_file.h"
#include "runtime/checkpoint/tensor_walk.h"

namespace trainyard::runtime {

namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

struct Beside {
  std::string path;
  RegularFile file;
  SafetensorsHeader header;
};

StatusOr<Beside> openBeside(const std::string& path) {
  Beside beside;
  if (path.empty()) return beside;
  beside.path = path;
  TY_ASSIGN_OR_RETURN(beside.file, openRegularFile(path));
  TY_ASSIGN_OR_RETURN(beside.header,
                      readSafetensorsHeader(beside.file.fd.get(), path, beside.file.size));
  return beside;
}

Status copyArrays(const Beside& beside, DurableFile& to) {
  std::vector<std::byte> piece;
  for (const SafetensorsEntry& entry : beside.header.entries) {
    for (std::uint64_t at = entry.begin; at < entry.end; at += piece.size()) {
      piece.resize(std::min<std::uint64_t>(kPieceBytes, entry.end - at));
      TY_RETURN_IF_ERROR(readFully(beside.file.fd.get(), beside.path, beside.header.data_start + at,
                                   std::span(piece)));
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

}  // namespace

Status exportSafetensors(const CheckpointReader& reader, const std::string& path, bool slots,
                         const std::string& beside) {
  TY_ASSIGN_OR_RETURN(const Beside others, openBeside(beside));
  std::vector<std::pair<ManifestVariable, std::string>> tensors;
  std::vector<SafetensorsEntry> entries;
  for (const ManifestVariable& variable : sortedVariables(reader.manifest())) {
    std::vector<std::string> names{""};
    if (slots) {
      for (std::string& slot : sortedSlots(reader.manifest())) {
        if (reader.hasSlot(variable.name, slot)) names.push_back(std::move(slot));
      }
    }
    for (const std::string& slot : names) {
      tensors.emplace_back(variable, slot);
      entries.push_back({.name = variable.name + (slot.empty() ? "" : "/") + slot,
                         .dtype = variable.dtype,
                         .shape = variable.shape});
    }
  }
  TY_ASSIGN_OR_RETURN(const std::vector<TableArray> arrays, tableArrays(reader, slots));
  for (const TableArray& array : arrays) entries.push_back(array.entry);
  entries.insert(entries.end(), others.header.entries.begin(), others.header.entries.end());
  const Manifest& manifest = reader.manifest();
  auto header = encodeSafetensorsHeader({{"trainyard.step", fmt::format("{}", manifest.step)},
                                         {"trainyard.job", manifest.job_uid},
                                         {"trainyard.optimizer", manifest.optimizer}},
                                        entries);
  if (!header.ok()) return annotate(header.status(), path);

  TY_ASSIGN_OR_RETURN(DurableFile file, DurableFile::create(path));
  TY_RETURN_IF_ERROR(file.write(*header));
  for (const auto& [variable, slot] : tensors) {
    TY_RETURN_IF_ERROR(walkTensor(reader, variable, slot, [&](std::span<const std::byte> bytes) {
      return file.write(bytes);
    }));
  }
  for (const TableArray& array : arrays) {
    TY_RETURN_IF_ERROR(
        reader.walkTableArray(array.table, array.array,
                              [&](std::span<const std::byte> bytes) { return file.write(bytes); }));
  }
  TY_RETURN_IF_ERROR(copyArrays(others, file));
  return file.commit();
}

}  // namespace trainyard::runtime
