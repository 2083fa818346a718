// The types of a program's arrays as safetensors calls them.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "runtime/tensor/element_type.h"

namespace trainyard::runtime {

inline std::string_view safetensorsType(ElementType type) {
  constexpr std::array<std::string_view, kElementTypes> kTypes = {
      "F32", "F16", "BF16", "F64", "I32", "I64", "U8", "I8", "BOOL"};
  return kTypes[static_cast<std::size_t>(type)];
}

}  // namespace trainyard::runtime
