#include "runtime/catalog/wire_type.h"

namespace trainyard::runtime {

ElementType wireType(std::string_view field) {
  if (field == "Float16") return ElementType::kFloat16;
  if (field == "BFloat16") return ElementType::kBFloat16;
  return ElementType::kFloat32;
}

std::int64_t wireBytes(const v1::Training& training) {
  return static_cast<std::int64_t>(sizeOf(wireType(training.wire_type())));
}

}  // namespace trainyard::runtime
