#include <utility>

#include "fmt/format.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/durable_file.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/tensor_walk.h"

namespace trainyard::runtime {

Status exportSafetensors(const CheckpointReader& reader, const std::string& path, bool slots) {
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
  return file.commit();
}

}  // namespace trainyard::runtime
