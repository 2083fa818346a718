#include "runtime/model/internal/layer.h"

namespace trainyard::runtime {

float* Workspace::beside(const float* used, std::int64_t size) {
  Buffer<float>& other = turns[0].data() == used ? turns[1] : turns[0];
  return other.atLeast(size);
}

}  // namespace trainyard::runtime
