#include "runtime/checkpoint/safetensors_file.h"

#include "base/core/strings.h"
#include "fmt/format.h"

namespace trainyard::runtime {

StatusOr<SafetensorsHeader> readSafetensorsHeader(const ReadableFile& file) {
  const auto none = [&](std::string_view what) {
    return absl::DataLossError(fmt::format("{}: {}", file.path(), what));
  };
  std::uint64_t length = 0;
  if (file.size() < sizeof length) return none("is too short for a safetensors file");
  TY_RETURN_IF_ERROR(file.read(0, std::as_writable_bytes(std::span(&length, 1))));
  if (length > kMaxSafetensorsHeader || length > file.size() - sizeof length)
    return none(fmt::format("header of {} bytes in a file of {}", length, file.size()));
  std::string text(length, '\0');
  TY_RETURN_IF_ERROR(
      file.read(sizeof length, std::as_writable_bytes(std::span(text.data(), text.size()))));
  auto header = decodeSafetensorsHeader(text, file.size());
  if (!header.ok()) return none(fromAbsl(header.status().message()));
  return header;
}

}  // namespace trainyard::runtime
