#include "base/process/freed_memory.h"

#include <malloc.h>

#include <limits>

namespace trainyard {

void keepFreedMemory() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TOP_PAD, 64 << 20);
  mallopt(M_ARENA_MAX, 2);
}

}  // namespace trainyard
