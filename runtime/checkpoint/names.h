// File and tensor names inside a checkpoint directory. Names come from outside (a manifest, a
// shard's header, a listing): every function accepts any text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trainyard::runtime {

// Step and epoch as a file name carries them: "step-1200.e5.json",
// "ps-1.step-1200.e5.i3.safetensors".
struct StepName {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  auto operator<=>(const StepName&) const = default;
};

// A manifest's name, exactly; nothing for any other text.
std::optional<StepName> parseManifestName(std::string_view name);
// The first two parts "step-N" "eM" of a shard's or temporary file's name, where there are any.
std::optional<StepName> findStepName(std::string_view name);

// A name that stays in its directory and is not hidden: letters, digits and "._-", at most 255
// long.
bool isPlainFileName(std::string_view name);

// "variable[begin:end]" or "variable[begin:end]/slot".
struct TensorName {
  std::string variable;
  std::string slot;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
std::optional<TensorName> parseTensorName(std::string_view name);

}  // namespace trainyard::runtime
