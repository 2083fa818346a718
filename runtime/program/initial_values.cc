#include "runtime/program/initial_values.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "runtime/catalog/catalog.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/safetensors_file.h"
#include "runtime/program/array_types.h"
#include "runtime/program/declared_buffers.h"
#include "runtime/storage/storage.h"
#include "runtime/tensor/reduce.h"

namespace trainyard::runtime {
namespace {

using session::DeclaredVariable;

Status refused(const std::string& path, const std::string& what) {
  return withClass(absl::InvalidArgumentError(fmt::format("training.initFrom: {}: {}", path, what)),
                   FailureClass::kPermanent);
}

std::string textOf(std::string_view dtype, const std::vector<std::int64_t>& shape) {
  return fmt::format("{} [{}]", dtype, fmt::join(shape, ", "));
}

bool is16Bit(std::string_view dtype) {
  return dtype == "F16" || dtype == "BF16";
}

// What an export has beside a model's arrays: the job's counter, and the optimizer's slots.
bool isBeside(const std::string& name, const session::Declaration& declaration) {
  return name == kGlobalStep ||
         std::ranges::any_of(declaration.variables, [&](const DeclaredVariable& variable) {
           return name.starts_with(variable.name + "/");
         });
}

// The table whose ids and rows are in the file, of which this is one array; "": it is none of a
// table.
std::string tableOf(const std::string& name, const SafetensorsHeader& header) {
  const auto has = [&](const std::string& wanted) {
    return std::ranges::any_of(header.entries,
                               [&](const SafetensorsEntry& entry) { return entry.name == wanted; });
  };
  for (std::size_t at = name.find('/'); at != std::string::npos; at = name.find('/', at + 1)) {
    const std::string table = name.substr(0, at);
    if (has(table + "/ids") && has(table + "/rows")) return table;
  }
  return "";
}

Status checkArray(const std::string& path, const SafetensorsEntry& entry,
                  const DeclaredVariable& variable) {
  const std::string_view dtype = safetensorsType(variable.type);
  const bool widened = variable.trainable && is16Bit(entry.dtype);
  if (entry.shape == variable.shape && (entry.dtype == dtype || widened)) return absl::OkStatus();
  return refused(path,
                 fmt::format("array {} is {}, the model's is {}", variable.name,
                             textOf(entry.dtype, entry.shape), textOf(dtype, variable.shape)));
}

Status readArray(const ReadableFile& file, std::uint64_t at, const SafetensorsEntry& entry,
                 std::span<std::byte> to) {
  if (!is16Bit(entry.dtype) || to.size() == entry.end - entry.begin) return file.read(at, to);
  std::vector<std::byte> narrow(entry.end - entry.begin);
  TY_RETURN_IF_ERROR(file.read(at, narrow));
  widenFloats(entry.dtype == "F16" ? ElementType::kFloat16 : ElementType::kBFloat16, to.data(),
              narrow.data(), static_cast<std::int64_t>(to.size() / sizeof(float)));
  return absl::OkStatus();
}

}  // namespace

bool isArrayFile(const std::string& path) {
  return path.ends_with(".safetensors");
}

Status readInitialArrays(const std::string& path, const session::Declaration& declaration,
                         bool trained, const session::SessionMemory& memory) {
  const auto file = openStored(path);
  if (!file.ok()) return refused(path, std::string(file.status().message()));
  const auto header = readSafetensorsHeader(**file);
  if (!header.ok()) return refused(path, std::string(header.status().message()));
  std::map<std::string, const SafetensorsEntry*> arrays;
  for (const SafetensorsEntry& entry : header->entries) arrays[entry.name] = &entry;
  for (std::size_t v = 0; v < declaration.variables.size(); ++v) {
    const DeclaredVariable& variable = declaration.variables[v];
    const auto found = arrays.find(variable.name);
    if (found == arrays.end()) {
      return refused(path, fmt::format("has no array {}, the model's is {}", variable.name,
                                       textOf(safetensorsType(variable.type), variable.shape)));
    }
    const SafetensorsEntry& entry = *found->second;
    TY_RETURN_IF_ERROR(checkArray(path, entry, variable));
    if (trained || !variable.trainable) {
      TY_RETURN_IF_ERROR(
          readArray(**file, header->data_start + entry.begin, entry, memory.value(v)));
    }
    arrays.erase(found);
  }
  for (const auto& [name, entry] : arrays) {
    if (isBeside(name, declaration)) continue;
    if (const std::string table = tableOf(name, *header); !table.empty()) {
      return refused(path, fmt::format("has rows of the table {}, which come from a run's "
                                       "directory, not from a file",
                                       table));
    }
    return refused(path, fmt::format("array {} is none of the model's", name));
  }
  return absl::OkStatus();
}

Status readInitialBuffers(const std::string& init_from, const session::Declaration& declaration,
                          const session::SessionMemory& memory) {
  if (isArrayFile(init_from))
    return readInitialArrays(init_from, declaration, /*trained=*/false, memory);
  const StatusOr<std::string> path = findManifest(init_from);
  if (!path.ok()) return absl::OkStatus();
  const StatusOr<Manifest> manifest = readManifest(*path);
  if (!manifest.ok()) return absl::OkStatus();
  const std::string dir = std::filesystem::path(*path).parent_path().string();
  return DeclaredBuffers(declaration, memory, dir, /*kept=*/0).restore(manifest->step);
}

}  // namespace trainyard::runtime
