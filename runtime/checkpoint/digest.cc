#include <algorithm>

#include "base/security/sha256.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/tensor_walk.h"

namespace trainyard::runtime {
namespace {

constexpr std::int64_t kWalkElements = 256 * 1024;

template <typename T>
void add(Sha256& hash, const std::vector<T>& values, std::int64_t at, std::int64_t count,
         std::int64_t each = 1) {
  hash.update(std::as_bytes(std::span(values).subspan(static_cast<std::size_t>(at * each),
                                                      static_cast<std::size_t>(count * each))));
}

// Partition by partition, because servers may have held them in other ranges.
Status addTable(const CheckpointReader& reader, std::size_t number, Sha256& hash) {
  const ManifestTable& table = reader.manifest().tables[number];
  hash.update(
      fmt::format("\ntable {} [{}] {}\n", table.name, table.dim, fmt::join(table.slots, ",")));
  return reader.walkTable(number, 0, kTablePartitions, [&](const TableRows& rows) {
    std::int64_t at = 0;
    for (const std::int64_t size : rows.sizes) {
      hash.update(fmt::format("{}\n", size));
      add(hash, rows.ids, at, size);
      add(hash, rows.steps, at, size);
      add(hash, rows.counts, at, size);
      add(hash, rows.weights, at, size, table.dim);
      for (const std::vector<float>& slot : rows.slots) add(hash, slot, at, size, table.dim);
      at += size;
    }
    return absl::OkStatus();
  });
}

}  // namespace

Status walkTensor(const CheckpointReader& reader, const ManifestVariable& variable,
                  const std::string& slot,
                  const std::function<Status(std::span<const std::byte>)>& sink) {
  const std::int64_t total = elements(variable);
  std::vector<std::byte> buffer(static_cast<std::size_t>(std::min(total, kWalkElements)) * 4);
  for (std::int64_t at = 0; at < total; at += kWalkElements) {
    const auto part =
        std::span(buffer).first(static_cast<std::size_t>(std::min(kWalkElements, total - at)) * 4);
    TY_RETURN_IF_ERROR(reader.readBytes(variable.name, slot, at, part));
    TY_RETURN_IF_ERROR(sink(part));
  }
  return absl::OkStatus();
}

std::vector<ManifestVariable> sortedVariables(const Manifest& manifest) {
  std::vector<ManifestVariable> result = manifest.variables;
  std::sort(result.begin(), result.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return result;
}

std::vector<std::string> sortedSlots(const Manifest& manifest) {
  std::vector<std::string> result = manifest.slots;
  std::sort(result.begin(), result.end());
  return result;
}

// The text between the tensors is unambiguous: names hold neither blanks nor quotes, and shape and
// dtype give the number of bytes that follow.
StatusOr<std::string> checkpointDigest(const CheckpointReader& reader) {
  Sha256 hash;
  hash.update(
      fmt::format("trainyard checkpoint {}\nstep {}\n", kCheckpointFormat, reader.manifest().step));
  const auto add = [&](const ManifestVariable& variable, const std::string& slot) {
    hash.update(fmt::format("\n{} '{}' {} [{}]\n", variable.name, slot, variable.dtype,
                            fmt::join(variable.shape, ",")));
    return walkTensor(reader, variable, slot, [&](std::span<const std::byte> bytes) {
      hash.update(bytes);
      return absl::OkStatus();
    });
  };
  for (const ManifestVariable& variable : sortedVariables(reader.manifest())) {
    TY_RETURN_IF_ERROR(add(variable, ""));
    for (const std::string& slot : sortedSlots(reader.manifest())) {
      if (reader.hasSlot(variable.name, slot)) TY_RETURN_IF_ERROR(add(variable, slot));
    }
  }
  for (std::size_t t = 0; t < reader.manifest().tables.size(); ++t)
    TY_RETURN_IF_ERROR(addTable(reader, t, hash));
  return hash.hexDigest();
}

}  // namespace trainyard::runtime
