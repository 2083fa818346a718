#include "runtime/program/declared_buffers.h"

#include <span>
#include <utility>

#include "fmt/format.h"
#include "runtime/checkpoint/safetensors_file.h"
#include "runtime/program/array_types.h"
#include "runtime/storage/storage.h"

namespace trainyard::runtime {
namespace {

std::vector<SafetensorsEntry> bufferEntries(
    const std::vector<session::DeclaredVariable>& variables) {
  std::vector<SafetensorsEntry> entries;
  for (const session::DeclaredVariable& variable : variables) {
    const std::string_view dtype = safetensorsType(variable.type);
    entries.push_back(
        {.name = variable.name, .dtype = std::string(dtype), .shape = variable.shape});
  }
  return entries;
}

Status writeBuffers(const StepFiles& files, int kept, std::int64_t step,
                    const std::vector<session::DeclaredVariable>& variables,
                    const std::vector<std::vector<std::byte>>& values) {
  const std::string path = files.path(step);
  auto header = encodeSafetensorsHeader({}, bufferEntries(variables));
  if (!header.ok()) return annotate(header.status(), path);
  TY_ASSIGN_OR_RETURN(const auto file, createStored(path));
  TY_RETURN_IF_ERROR(file->write(*header));
  for (const std::vector<std::byte>& value : values) TY_RETURN_IF_ERROR(file->write(value));
  TY_RETURN_IF_ERROR(file->commit());
  files.prune(kept);
  return absl::OkStatus();
}

}  // namespace

DeclaredBuffers::DeclaredBuffers(const session::Declaration& declaration,
                                 const session::SessionMemory& memory, const std::string& dir,
                                 int kept)
    : memory_(memory), files_(declaredBufferFiles(dir)), kept_(kept) {
  for (std::size_t v = 0; v < declaration.variables.size(); ++v) {
    if (declaration.variables[v].trainable) continue;
    numbers_.push_back(v);
    variables_.push_back(declaration.variables[v]);
  }
}

std::function<Status()> DeclaredBuffers::keep(std::int64_t version) const {
  std::vector<std::vector<std::byte>> values;
  for (const std::size_t number : numbers_) {
    const auto value = memory_.value(number);
    values.emplace_back(value.begin(), value.end());
  }
  return
      [files = files_, kept = kept_, version, variables = variables_, values = std::move(values)] {
        return writeBuffers(files, kept, version, variables, values);
      };
}

Status DeclaredBuffers::restore(std::int64_t version) const {
  const auto step = files_.newest(version);
  if (!step) return absl::OkStatus();
  const std::string path = files_.path(*step);
  TY_ASSIGN_OR_RETURN(const auto file, openStored(path));
  TY_ASSIGN_OR_RETURN(const SafetensorsHeader header, readSafetensorsHeader(*file));
  const std::vector<SafetensorsEntry> wanted = bufferEntries(variables_);
  if (header.entries.size() != wanted.size())
    return absl::DataLossError(fmt::format("{}: the arrays are not those of the model", path));
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const SafetensorsEntry& entry = header.entries[i];
    if (entry.name != wanted[i].name || entry.dtype != wanted[i].dtype ||
        entry.shape != wanted[i].shape) {
      return absl::DataLossError(
          fmt::format("{}: array {} is not that of the model", path, entry.name));
    }
    TY_RETURN_IF_ERROR(file->read(header.data_start + entry.begin, memory_.value(numbers_[i])));
  }
  return absl::OkStatus();
}

}  // namespace trainyard::runtime
